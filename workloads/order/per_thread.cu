/* Default streams of threads (compiled with --default-stream per-thread): each thread's is its own, and all of them wait
 * for the legacy stream and it for them. */
#include "order.h"
#include <thread>

int main()
{
    order_check check("per_thread");
    const int n_threads = 4;
    uint32_t *v[n_threads], want[n_threads], *shared = new_array();
    for (int t = 0; t < n_threads; t++) {
        v[t] = new_array();
        want[t] = 0;
    }
    MUST(cudaDeviceSynchronize());
    std::vector<std::thread> threads;
    for (int t = 0; t < n_threads; t++) {
        threads.emplace_back([&, t] {
            std::vector<uint32_t> host(order_n);
            for (uint32_t i = 1; i <= 25; i++) {
                step(v[t], i + t);
                want[t] = want[t] * 3 + i + t;
                if (i % 6 == 0) {
                    for (uint32_t &x : host)
                        x = i;
                    MUST(cudaMemcpyAsync(v[t], host.data(), order_bytes, cudaMemcpyHostToDevice, 0));
                    want[t] = i;
                }
                if (i % 10 == 0) {
                    MUST(cudaMemcpy(host.data(), v[t], order_bytes, cudaMemcpyDeviceToHost));
                    if (host[17] != want[t])
                        want[t] = 0xffffffff; /* told below */
                }
            }
            MUST(cudaStreamSynchronize(cudaStreamPerThread));
        });
    }
    for (std::thread &t : threads)
        t.join();
    for (int t = 0; t < n_threads; t++)
        check.all(v[t], want[t], "a thread's stream");

    /* This thread's stream and the legacy stream in turn. */
    uint32_t expected = 0;
    for (uint32_t i = 1; i <= 30; i++) {
        step(shared, i);
        step(shared, i + 3, cudaStreamLegacy);
        expected = (expected * 3 + i) * 3 + i + 3;
    }
    MUST(cudaStreamSynchronize(0));
    check.all(shared, expected, "own stream and legacy stream");

    /* Work left behind by a thread that has ended. */
    std::thread([&] {
        for (uint32_t i = 1; i <= 10; i++)
            step(shared, i);
    }).join();
    for (uint32_t i = 1; i <= 10; i++)
        expected = expected * 3 + i;
    MUST(cudaDeviceSynchronize());
    check.all(shared, expected, "work of a thread that has ended");
    return check.done();
}
