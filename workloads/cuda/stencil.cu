/* The heat equation in three dimensions: a 7-point stencil, planes kept in registers while a block walks along z, tiles
 * with borders in shared memory; several steps between two buffers. */
#include "check.h"

#define TX 16
#define TY 8

__global__ void step(float *out, const float *in, int nx, int ny, int nz, float a, float b)
{
    __shared__ float tile[TY + 2][TX + 2];
    int x = blockIdx.x * TX + threadIdx.x, y = blockIdx.y * TY + threadIdx.y, plane = nx * ny;
    bool inside = x < nx && y < ny;
    int at = inside ? y * nx + x : 0, lx = threadIdx.x + 1, ly = threadIdx.y + 1;
    float below = 0, here = inside ? in[at] : 0, above;
    for (int z = 0; z < nz; z++, at += plane) {
        above = inside && z + 1 < nz ? in[at + plane] : 0;
        tile[ly][lx] = here;
        if (threadIdx.x == 0)
            tile[ly][0] = inside && x > 0 ? in[at - 1] : 0;
        if (threadIdx.x == TX - 1)
            tile[ly][TX + 1] = inside && x + 1 < nx ? in[at + 1] : 0;
        if (threadIdx.y == 0)
            tile[0][lx] = inside && y > 0 ? in[at - nx] : 0;
        if (threadIdx.y == TY - 1)
            tile[TY + 1][lx] = inside && y + 1 < ny ? in[at + nx] : 0;
        __syncthreads();
        if (inside)
            out[at] = a * here +
                      b * (below + above + tile[ly][lx - 1] + tile[ly][lx + 1] + tile[ly - 1][lx] + tile[ly + 1][lx]);
        __syncthreads();
        below = here;
        here = above;
    }
}

int main()
{
    checker check("stencil");
    const int nx = 45, ny = 37, nz = 29, n = nx * ny * nz, steps = 5;
    std::vector<float> start = random_floats(n, 27);
    float *from = to_device(start), *to = device_array<float>(n);
    std::vector<double> now(start.begin(), start.end()), next(n);
    for (int s = 0; s < steps; s++) {
        step<<<dim3((nx + TX - 1) / TX, (ny + TY - 1) / TY), dim3(TX, TY)>>>(to, from, nx, ny, nz, 0.4f, 0.1f);
        FINISH();
        float *kept = from;
        from = to;
        to = kept;
        for (int i = 0; i < n; i++) {
            int x = i % nx, y = i / nx % ny, z = i / nx / ny;
            double around = 0;
            around += x > 0 ? now[i - 1] : 0;
            around += x + 1 < nx ? now[i + 1] : 0;
            around += y > 0 ? now[i - nx] : 0;
            around += y + 1 < ny ? now[i + nx] : 0;
            around += z > 0 ? now[i - nx * ny] : 0;
            around += z + 1 < nz ? now[i + nx * ny] : 0;
            next[i] = (double)0.4f * now[i] + (double)0.1f * around;
        }
        now.swap(next);
    }
    std::vector<float> got = to_host(from, n);
    for (int i = 0; i < n; i++)
        check.near(got[i], now[i], 1e-6, "temperature", i); /* eight roundings of values below 1 per step */
    return check.done();
}
