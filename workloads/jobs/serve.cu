/* An inference server under an open-loop load: requests arrive by a clock of their own, wait their turn, and their latency
 * counts from the arrival.  Ends with one line of JSON. */
#include <sys/prctl.h>

#include "models.cuh"

static const char help[] =
    "usage: serve [--model=mlp|transformer|convnet|decoder] [--rate=REQUESTS_PER_SECOND | --load=0.5] [--seconds=10]\n"
    "             [--arrivals=poisson|even|FILE] [--seed=1] [--scale=1] [--warmup=20] [--latencies=FILE]\n"
    "             [--requests=FILE] [--live=FILE]\n"
    "\n"
    "  --load      rate as a part of what the warm-up shows to be possible; with --rate it is not used\n"
    "  --arrivals  a FILE has one arrival time in seconds per line, ascending\n"
    "  --scale     multiplies the work of a request\n"
    "  --latencies write the latency of each request, in milliseconds, one per line\n"
    "  --requests  write when each arrived, was begun and ended, in nanoseconds of CLOCK_MONOTONIC, a line each\n"
    "  --live      add such lines to a file as the requests end, with how many answers were wrong so far\n";

/* One request: input up, the model, result down, wait. */
struct server {
    std::unique_ptr<model> m;
    float *in, *out; /* pinned */
    cudaStream_t stream;

    server(const char *name, double scale) : m(make_model(name, scale))
    {
        CUDA(cudaMallocHost(&in, m->n_in * sizeof(float)));
        CUDA(cudaMallocHost(&out, m->n_out * sizeof(float)));
        CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        std::vector<float> v = random_floats(m->n_in, 4711, 1.0f);
        std::copy(v.begin(), v.end(), in);
    }
    void handle()
    {
        CUDA(cudaMemcpyAsync(m->in, in, m->n_in * sizeof(float), cudaMemcpyHostToDevice, stream));
        m->forward(stream);
        CUDA(cudaMemcpyAsync(out, m->out, m->n_out * sizeof(float), cudaMemcpyDeviceToHost, stream));
        CUDA(cudaStreamSynchronize(stream));
    }
    uint64_t answer() const
    {
        return checksum(out, m->n_out * sizeof(float));
    }
};

static std::vector<double> arrivals_of(const char *how, double rate, double seconds, uint64_t seed)
{
    std::vector<double> times;
    struct sequence s = {seed};
    bool is_poisson = strcmp(how, "poisson") == 0;
    if (is_poisson || strcmp(how, "even") == 0) {
        for (double t = 0; (t += is_poisson ? -log(s.uniform()) / rate : 1 / rate) < seconds;)
            times.push_back(t);
        return times;
    }
    FILE *f = fopen(how, "r");
    if (f == nullptr) {
        fprintf(stderr, "--arrivals=%s: neither poisson, even nor a file that can be read\n", how);
        exit(2);
    }
    for (double t; fscanf(f, "%lf", &t) == 1 && t < seconds;)
        times.push_back(t);
    fclose(f);
    return times;
}

/* A file of `n` lines; none if there is no path. */
template <class Line> static bool write_lines(const char *path, size_t n, Line line)
{
    if (path == nullptr)
        return true;
    FILE *f = fopen(path, "w");
    for (size_t i = 0; f != nullptr && i < n; i++)
        line(f, i);
    if (f != nullptr && fclose(f) == 0)
        return true;
    perror(path);
    return false;
}

/* A file to add lines to, each as it is; none if there is no path. */
static FILE *open_live(const char *path)
{
    FILE *f = path != nullptr ? fopen(path, "a") : nullptr;
    if (f != nullptr) {
        setvbuf(f, nullptr, _IOLBF, 4096);
    } else if (path != nullptr) {
        perror(path);
        exit(2);
    }
    return f;
}

int main(int argc, char **argv)
{
    options o(argc, argv, help);
    FILE *live = open_live(o.text_of("live", nullptr));
    const char *name = o.text_of("model", "mlp"), *how = o.text_of("arrivals", "poisson");
    const char *latencies = o.text_of("latencies", nullptr), *requests = o.text_of("requests", nullptr);
    double rate = o.number("rate", 0), load = o.number("load", 0.5), seconds = o.number("seconds", 10);
    int warmup = (int)o.number("warmup", 20);
    uint64_t seed = (uint64_t)o.number("seed", 1);
    server s(name, o.number("scale", 1));
    o.done();
    prctl(PR_SET_TIMERSLACK, 1000);

    std::vector<double> service;
    for (int i = 0; i < warmup + 3; i++) {
        double begin = now_s();
        s.handle();
        if (i >= 3) /* the first ones compile and allocate */
            service.push_back(now_s() - begin);
    }
    uint64_t answer = s.answer();
    std::sort(service.begin(), service.end());
    double alone = percentile(service, 0.5);
    if (rate <= 0)
        rate = load / alone;
    fprintf(stderr, "serve: %s, %.3f ms a request, %.1f requests/s\n", name, alone * 1e3, rate);

    std::vector<double> arrival = arrivals_of(how, rate, seconds, seed), latency, served, begun;
    size_t wrong = 0;
    double start = now_s() + 0.01;
    for (double a : arrival) {
        sleep_until(start + a);
        double begin = now_s();
        s.handle();
        double end = now_s();
        latency.push_back(end - start - a);
        served.push_back(end - begin);
        begun.push_back(begin);
        wrong += s.answer() != answer;
        if (live != nullptr)
            fprintf(live, "%.0f %.0f %.0f %zu\n", (start + a) * 1e9, begin * 1e9, end * 1e9, wrong);
    }
    double elapsed = now_s() - start, busy = 0;
    if (!write_lines(latencies, latency.size(), [&](FILE *f, size_t i) { fprintf(f, "%.6f\n", latency[i] * 1e3); }) ||
        !write_lines(requests, arrival.size(), [&](FILE *f, size_t i) {
            fprintf(f, "%.0f %.0f %.0f\n", (start + arrival[i]) * 1e9, begun[i] * 1e9, (begun[i] + served[i]) * 1e9);
        }))
        return 1;
    for (double b : served)
        busy += b;
    std::sort(latency.begin(), latency.end());
    std::sort(served.begin(), served.end());
    printf("{\"job\": \"serve\", \"model\": \"%s\", \"requests\": %zu, \"wrong\": %zu, \"rate\": %.6g, \"warm_ms\": %.6g, "
           "\"p50_ms\": %.6g, \"p90_ms\": %.6g, \"p99_ms\": %.6g, \"p999_ms\": %.6g, \"max_ms\": %.6g, "
           "\"service_p50_ms\": %.6g, \"service_p99_ms\": %.6g, \"busy_share\": %.6g, \"seconds\": %.6g, "
           "\"answer\": \"%016llx\"}\n",
           name, latency.size(), wrong, rate, alone * 1e3, percentile(latency, 0.5) * 1e3, percentile(latency, 0.9) * 1e3,
           percentile(latency, 0.99) * 1e3, percentile(latency, 0.999) * 1e3, percentile(latency, 1) * 1e3,
           percentile(served, 0.5) * 1e3, percentile(served, 0.99) * 1e3, busy / elapsed, elapsed,
           (unsigned long long)answer);
    return wrong == 0 ? 0 : 1;
}
