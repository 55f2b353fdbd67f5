/* Asynchronous copies and pageable memory: the source may be used again at once, the destination is there when the call
 * returns; pinned memory is read and written when the copy's turn comes. */
#include "order.h"
#include <cstring>

int main()
{
    order_check check("pageable");
    cudaStream_t a;
    MUST(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    uint32_t *v = new_array(), *w = new_array();
    MUST(cudaDeviceSynchronize());

    /* Small and large sources, changed right after the call. */
    for (size_t n : {16ul, 1000ul, 16384ul, 20000ul}) {
        uint32_t want = 0;
        std::vector<uint32_t> source(n), got(n);
        MUST(cudaMemsetAsync(v, 0, order_bytes, a));
        MUST(cudaMemsetAsync(w, 0, order_bytes, a));
        for (uint32_t i = 1; i <= 12; i++) {
            step(v, i, a);
            for (uint32_t &x : source)
                x = i * 77;
            MUST(cudaMemcpyAsync(w, source.data(), n * 4, cudaMemcpyHostToDevice, a));
            for (uint32_t &x : source)
                x = 0xdead;
            join(v, w, a);
            want = (want * 3 + i) * 3 + i * 77;
        }
        MUST(cudaMemcpyAsync(got.data(), v, n * 4, cudaMemcpyDeviceToHost, a));
        bool ok = true; /* without waiting: into pageable memory the call returns when it is done */
        for (uint32_t x : got)
            ok &= x == want;
        check.is(ok, "pageable there and back");
    }

    /* Pinned: what is read is what stands there when its turn comes, so it is left alone until then. */
    uint32_t *pinned, *back, want = 0;
    MUST(cudaMallocHost(&pinned, 12 * order_bytes));
    MUST(cudaMallocHost(&back, order_bytes));
    MUST(cudaMemsetAsync(v, 0, order_bytes, a));
    for (uint32_t i = 0; i < 12; i++) {
        for (int k = 0; k < order_n; k++)
            pinned[i * order_n + k] = i * 13 + 1;
        step(v, i + 1, a);
        MUST(cudaMemcpyAsync(w, pinned + i * order_n, order_bytes, cudaMemcpyHostToDevice, a));
        join(v, w, a);
        want = (want * 3 + i + 1) * 3 + i * 13 + 1;
    }
    MUST(cudaMemcpyAsync(back, v, order_bytes, cudaMemcpyDeviceToHost, a));
    MUST(cudaStreamSynchronize(a));
    bool ok = true;
    for (int k = 0; k < order_n; k++)
        ok &= back[k] == want;
    check.is(ok, "pinned there and back");

    /* Rows: a 2-D copy in the middle of a stream. */
    MUST(cudaMemsetAsync(v, 0, order_bytes, a));
    step(v, 5, a);
    MUST(cudaMemcpy2DAsync(w, 400, v, 200, 200, 50, cudaMemcpyDeviceToDevice, a));
    MUST(cudaMemcpy2DAsync(v, 200, w, 400, 200, 50, cudaMemcpyDeviceToDevice, a));
    step(v, 6, a);
    MUST(cudaStreamSynchronize(a));
    check.all(v, 5 * 3 + 6, "rows");
    return check.done();
}
