/* The kernels in OpenCL C, for PoCL: the same work in the same blocks as in device_cuda.cu.  TILE and PER_BLOCK are given when
 * this is compiled. */
#define FUNCTION static inline
#include "device_loops.inc"

__kernel void empty(__global float *a)
{
}

__kernel void vadd(__global const float *a, __global const float *b, __global float *c, int n)
{
    int i = get_global_id(0);
    if (i < n)
        c[i] = a[i] + b[i];
}

__kernel void saxpy(__global const float *x, __global float *y, float factor, int n)
{
    int i = get_global_id(0);
    if (i < n)
        y[i] = factor * x[i] + y[i];
}

__kernel void naive_matmul(__global const float *a, __global const float *b, __global float *c, int n)
{
    int x = get_global_id(0), y = get_global_id(1);
    float sum = 0;
    for (int k = 0; k < n; k++)
        sum += a[y * n + k] * b[k * n + x];
    c[y * n + x] = sum;
}

__kernel void tiled_matmul(__global const float *a, __global const float *b, __global float *c, int n)
{
    __local float left[TILE][TILE], right[TILE][TILE];
    int tx = get_local_id(0), ty = get_local_id(1), x = get_global_id(0), y = get_global_id(1);
    float sum = 0;
    for (int tile = 0; tile < n / TILE; tile++) {
        left[ty][tx] = a[y * n + tile * TILE + tx];
        right[ty][tx] = b[(tile * TILE + ty) * n + x];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < TILE; k++)
            sum += left[ty][k] * right[k][tx];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    c[y * n + x] = sum;
}

__kernel void reduction(__global const float *a, __global float *out)
{
    __local float part[PER_BLOCK / 2];
    int t = get_local_id(0), i = get_group_id(0) * PER_BLOCK + t;
    part[t] = a[i] + a[i + PER_BLOCK / 2];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int d = PER_BLOCK / 4; d > 0; d /= 2) {
        if (t < d)
            part[t] += part[t + d];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (t == 0)
        out[get_group_id(0)] = part[0];
}

__kernel void softmax(__global const float *a, __global float *out, int n)
{
    __local float part[256];
    __global const float *row = a + get_group_id(0) * n;
    __global float *to = out + get_group_id(0) * n;
    float most = -INFINITY, sum = 0;
    int t = get_local_id(0);
    for (int i = t; i < n; i += 256)
        most = fmax(most, row[i]);
    part[t] = most;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int d = 128; d > 0; d /= 2) {
        if (t < d)
            part[t] = fmax(part[t], part[t + d]);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    most = part[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = t; i < n; i += 256) {
        float e = exp(row[i] - most);
        to[i] = e;
        sum += e;
    }
    part[t] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int d = 128; d > 0; d /= 2) {
        if (t < d)
            part[t] += part[t + d];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    sum = 1.0f / part[0];
    for (int i = t; i < n; i += 256)
        to[i] *= sum;
}

__kernel void stencil(__global const float *a, __global float *out, int w, int h)
{
    int x = get_global_id(0), y = get_global_id(1), i = y * w + x;
    if (x > 0 && y > 0 && x < w - 1 && y < h - 1)
        out[i] = 0.5f * a[i] + 0.125f * (a[i - 1] + a[i + 1] + a[i - w] + a[i + w]);
}

__kernel void histogram(__global const uint *a, __global uint *out, int n)
{
    __local uint bins[256];
    int t = get_local_id(0), stride = get_global_size(0);
    bins[t] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = get_global_id(0); i < n; i += stride)
        atomic_inc(&bins[a[i] & 255]);
    barrier(CLK_LOCAL_MEM_FENCE);
    atomic_add(&out[t], bins[t]);
}

__kernel void mandelbrot(__global int *out, int w, int rounds)
{
    int x = get_global_id(0), y = get_global_id(1);
    float cx = -2.0f + 3.0f * x / w, cy = -1.5f + 3.0f * y / w;
    out[y * w + x] = mandelbrot_rounds(cx, cy, rounds);
}

__kernel void collatz(__global int *out)
{
    uint i = get_global_id(0);
    out[i] = collatz_steps(i + 1);
}

__kernel void transpose(__global const float *a, __global float *out, int n)
{
    __local float tile[32][33];
    int tx = get_local_id(0), ty = get_local_id(1), x = get_group_id(0) * 32 + tx, y = get_group_id(1) * 32 + ty;
    for (int j = 0; j < 32; j += 8)
        tile[ty + j][tx] = a[(y + j) * n + x];
    barrier(CLK_LOCAL_MEM_FENCE);
    x = get_group_id(1) * 32 + tx;
    y = get_group_id(0) * 32 + ty;
    for (int j = 0; j < 32; j += 8)
        out[(y + j) * n + x] = tile[tx][ty + j];
}
