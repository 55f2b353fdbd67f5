/* printf on the device: what comes out is compared with what the host's printf makes of the same values. */
#include "check.h"
#include <algorithm>
#include <cstdarg>
#include <string>
#include <unistd.h>

__global__ void speak(int block_values)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i % 3 == 0)
        printf("thread %d of %u: %5.2f %s %c %llx|%-6d|%%\n", i, gridDim.x * blockDim.x, i * 0.5,
               i % 2 ? "odd" : "even", 'a' + i % 26, 0x123456789abcull * (unsigned long long)i, -i);
    if (i == 7)
        printf("no argument\n");
    if (i == 8)
        printf("%e %g %ld %p %08x %+d\n", 1e-10, 1234567.0, -5000000000l, (void *)0x1000, 48879, block_values);
}

static std::string format(const char *text, ...)
{
    char line[200];
    va_list arguments;
    va_start(arguments, text);
    vsnprintf(line, sizeof(line), text, arguments);
    va_end(arguments);
    return line;
}

int main()
{
    checker check("printf");
    const int threads = 48, blocks = 4;
    int kept = dup(1);
    FILE *file = tmpfile();
    if (kept < 0 || file == NULL || dup2(fileno(file), 1) < 0)
        return 1;
    speak<<<blocks, threads>>>(99);
    cudaError_t launch = cudaGetLastError(), error = cudaDeviceSynchronize();
    fflush(stdout);
    dup2(kept, 1);
    check.is(launch == cudaSuccess && error == cudaSuccess, "launch");

    std::vector<std::string> want, got;
    for (int i = 0; i < threads * blocks; i++) {
        if (i % 3 == 0)
            want.push_back(format("thread %d of %u: %5.2f %s %c %llx|%-6d|%%\n", i, threads * blocks, i * 0.5,
                                  i % 2 ? "odd" : "even", 'a' + i % 26, 0x123456789abcull * (unsigned long long)i, -i));
    }
    want.push_back("no argument\n");
    want.push_back(format("%e %g %ld %p %08x %+d\n", 1e-10, 1234567.0, -5000000000l, (void *)0x1000, 48879, 99));
    char line[300];
    rewind(file);
    while (fgets(line, sizeof(line), file) != NULL)
        got.push_back(line);
    /* The order of threads is not defined, the lines are. */
    std::sort(want.begin(), want.end());
    std::sort(got.begin(), got.end());
    check.is(got.size() == want.size(), "number of lines", got.size());
    for (size_t i = 0; i < want.size() && i < got.size(); i++)
        check.is(got[i] == want[i], "line", i);
    return check.done();
}
