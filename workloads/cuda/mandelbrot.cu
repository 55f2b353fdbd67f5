/* The Mandelbrot set: loops whose length differs from lane to lane.  Without fused multiply-adds the result is exact. */
#include "check.h"

template <class T>
__global__ void mandelbrot(unsigned short *out, int width, int height, T left, T top, T pixel, int limit)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    T cr = left + (T)x * pixel, ci = top + (T)y * pixel, zr = 0, zi = 0;
    int i = 0;
    while (i < limit && zr * zr + zi * zi <= (T)4) {
        T kept = zr * zr - zi * zi + cr;
        zi = (T)2 * zr * zi + ci;
        zr = kept;
        i++;
    }
    out[y * width + x] = (unsigned short)i;
}

template <class T> static int reference(T cr, T ci, int limit)
{
    volatile T zr = 0, zi = 0; /* volatile: each product and sum is rounded by itself, as without contraction */
    for (int i = 0; i < limit; i++) {
        volatile T rr = zr * zr, ii = zi * zi, ri = (T)2 * zr;
        volatile T norm = rr + ii, difference = rr - ii, product = ri * zi;
        if (!(norm <= (T)4))
            return i;
        zr = difference + cr;
        zi = product + ci;
    }
    return limit;
}

template <class T> static void try_type(checker *check, const char *what, T left, T top, T pixel)
{
    const int width = 150, height = 110, limit = 200;
    unsigned short *d = device_array<unsigned short>(width * height);
    mandelbrot<T>
        <<<dim3((width + 31) / 32, (height + 3) / 4), dim3(32, 4)>>>(d, width, height, left, top, pixel, limit);
    FINISH();
    std::vector<unsigned short> got = to_host(d, width * height);
    for (int i = 0; i < width * height; i++) {
        volatile T dx = (T)(i % width) * pixel, dy = (T)(i / width) * pixel;
        check->is(got[i] == reference<T>(left + dx, top + dy, limit), what, i);
    }
}

int main()
{
    checker check("mandelbrot");
    try_type<float>(&check, "whole set in float", -2.2f, -1.2f, 0.02f);
    try_type<double>(&check, "detail in double", -0.7436447860, 0.1318252536, 1e-6);
    return check.done();
}
