/* A training job: a network of two dense layers learns what another one of the same shape answers, by Adam.  The kinds differ
 * in the shape of their kernels.  Runs for a time or a number of steps, or until SIGTERM; ends with one line of JSON. */
#include <csignal>

#include "models.cuh"

static const char help[] =
    "usage: train [--kind=short|long|coarse|memory|mixed] [--seconds=10 | --steps=N] [--scale=1]\n"
    "\n"
    "  short    many small kernels                  long    few kernels with many blocks\n"
    "  coarse   kernels with long blocks\n"
    "  memory   optimizer steps over large arrays   mixed   some of each\n"
    "Ends after its time or steps, or on SIGTERM.  The rate is counted from the start, or from SIGUSR1 on, which\n"
    "also makes it say how many steps it has done.\n";

static volatile sig_atomic_t is_over;
static volatile double counted_from;
static void stop(int)
{
    is_over = 1;
}
static void count(int)
{
    counted_from = now_s();
}

/* How far the training was at certain times; between them it went evenly. */
struct progress {
    std::vector<double> times, steps;
    void add(double when, double n)
    {
        times.push_back(when);
        steps.push_back(n);
    }
    double at(double when) const
    {
        size_t i = std::upper_bound(times.begin(), times.end(), when) - times.begin();
        if (i == 0 || i == times.size())
            return i == 0 ? steps.front() : steps.back();
        return steps[i - 1] + (steps[i] - steps[i - 1]) * (when - times[i - 1]) / (times[i] - times[i - 1]);
    }
};

/* Weights that are learnt, with what Adam keeps of them. */
struct learnt {
    size_t n;
    float *w, *gradient, *mean, *square;
    learnt(size_t count, size_t fan_in, uint64_t seed) : n(count)
    {
        w = to_device(random_floats(n, seed, sqrtf(3.0f / (float)fan_in)));
        gradient = device_floats(n);
        mean = device_floats(n);
        square = device_floats(n);
    }
    void step(float rate)
    {
        adam<<<std::min(pieces((int)n, 256), 4096), 256>>>(w, mean, square, gradient, (int)n, rate);
    }
};

struct trainer {
    int batch, in, hidden, out;
    learnt a, b;
    float *x, *want, *h, *y, *dh, *dy, *error, *loss;
    std::vector<learnt> extra; /* for the optimizer alone: an embedding that nothing else touches */

    trainer(int batch_, int in_, int hidden_, int out_, size_t extra_floats)
        : batch(batch_), in(in_), hidden(hidden_), out(out_), a((size_t)in * hidden, in, 11),
          b((size_t)hidden * out, hidden, 12)
    {
        x = to_device(random_floats((size_t)batch * in, 13, 1.0f));
        float *teacher_a = to_device(random_floats((size_t)in * hidden, 14, sqrtf(3.0f / (float)in)));
        float *teacher_b = to_device(random_floats((size_t)hidden * out, 15, sqrtf(3.0f / (float)hidden)));
        want = device_floats((size_t)batch * out);
        h = device_floats((size_t)batch * hidden);
        y = device_floats((size_t)batch * out);
        dh = device_floats((size_t)batch * hidden);
        dy = device_floats((size_t)batch * out);
        error = device_floats((size_t)batch * out);
        loss = device_floats(1);
        dense(h, x, teacher_a, nullptr, batch, hidden, in, RELU, 0);
        dense(want, h, teacher_b, nullptr, batch, out, hidden, NONE, 0);
        CUDA(cudaDeviceSynchronize());
        CUDA(cudaFree(teacher_a));
        CUDA(cudaFree(teacher_b));
        if (extra_floats > 0)
            extra.emplace_back(extra_floats, 1, 16);
    }
    void step()
    {
        int n = batch * out;
        dense(h, x, a.w, nullptr, batch, hidden, in, RELU, 0);
        dense(y, h, b.w, nullptr, batch, out, hidden, NONE, 0);
        error_of<<<pieces(n, 256), 256>>>(dy, error, y, want, n, 1.0f / (float)batch);
        /* dB = hT dy; dh = dy bT where h is not cut; dA = xT dh */
        launch_gemm({h, dy, nullptr, b.gradient, hidden, out, batch, hidden, out, out, 0, 0, 0, true, false, NONE, 1.0f}, 1, 0);
        launch_gemm({dy, b.w, nullptr, dh, batch, hidden, out, out, out, hidden, 0, 0, 0, false, true, NONE, 1.0f}, 1, 0);
        cut<<<pieces(batch * hidden, 256), 256>>>(dh, h, batch * hidden);
        launch_gemm({x, dh, nullptr, a.gradient, in, hidden, batch, in, hidden, hidden, 0, 0, 0, true, false, NONE, 1.0f}, 1, 0);
        a.step(1e-3f);
        b.step(1e-3f);
        for (learnt &e : extra)
            e.step(1e-3f);
        total<<<1, 128>>>(loss, error, n);
    }
    float read_loss()
    {
        float v;
        CUDA(cudaMemcpy(&v, loss, sizeof v, cudaMemcpyDeviceToHost));
        return v / (float)batch;
    }
    uint64_t sum()
    {
        std::vector<float> w(a.n + b.n);
        CUDA(cudaMemcpy(w.data(), a.w, a.n * sizeof(float), cudaMemcpyDeviceToHost));
        CUDA(cudaMemcpy(w.data() + a.n, b.w, b.n * sizeof(float), cudaMemcpyDeviceToHost));
        return checksum(w.data(), w.size() * sizeof(float));
    }
};

static trainer make_trainer(const char *kind, double scale)
{
    double r = sqrt(scale);
    if (strcmp(kind, "short") == 0)
        return trainer(64, (int)(128 * r), (int)(128 * r), 32, 0);
    if (strcmp(kind, "long") == 0)
        return trainer((int)(2048 * scale), 256, 256, 64, 0);
    if (strcmp(kind, "coarse") == 0)
        return trainer((int)(4096 * scale), 4096, 64, 64, 0);
    if (strcmp(kind, "memory") == 0)
        return trainer(64, 64, 64, 32, (size_t)(8e6 * scale));
    if (strcmp(kind, "mixed") == 0)
        return trainer((int)(512 * scale), 256, 256, 64, (size_t)(1e6 * scale));
    fprintf(stderr, "--kind=%s: there are short, long, coarse, memory and mixed\n", kind);
    exit(2);
}

int main(int argc, char **argv)
{
    options o(argc, argv, help);
    const char *kind = o.text_of("kind", "mixed");
    double seconds = o.number("seconds", 10);
    long steps = (long)o.number("steps", 0);
    trainer t = make_trainer(kind, o.number("scale", 1));
    o.done();
    signal(SIGTERM, stop);
    signal(SIGINT, stop);
    signal(SIGUSR1, count);

    t.step();
    float first = t.read_loss(), last = first;
    long n = 1;
    struct progress done;
    double start = now_s(), end = start, told = counted_from;
    done.add(start, n);
    fprintf(stderr, "train: %s, loss %.4f\n", kind, first);
    while (!is_over && (steps > 0 ? n < steps : end - start < seconds)) {
        t.step();
        /* As training loops do: the loss is looked at now and then, and that waits for the device. */
        if (++n % 4 == 0 || n == steps) {
            last = t.read_loss();
            end = now_s();
            done.add(end, n);
            if (counted_from != told) {
                told = counted_from;
                fprintf(stderr, "train: %ld steps\n", n);
            }
        }
    }
    last = t.read_loss();
    end = now_s();
    done.add(end, n);
    double from = counted_from > start ? counted_from : start;
    printf("{\"job\": \"train\", \"kind\": \"%s\", \"steps\": %ld, \"steps_per_s\": %.6g, \"first_loss\": %.6g, "
           "\"last_loss\": %.6g, \"seconds\": %.6g, \"weights\": \"%016llx\"}\n",
           kind, n, end > from ? (n - done.at(from)) / (end - from) : 0, first, last, end - start,
           (unsigned long long)t.sum());
    return 0;
}
