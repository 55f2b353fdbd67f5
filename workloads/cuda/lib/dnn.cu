/* cuDNN: convolution with its gradients, batch normalisation, pooling, softmax and activations, against loops in double.
 *
 * `dnn CASE` runs one case, `dnn` all of them. */
#include "library.h"
#include <cudnn.h>

static cudnnHandle_t handle;

#define DNN(call) TRY_AND_WAIT(call, CUDNN_STATUS_SUCCESS, cudnnGetErrorString(status_))

/* Images, channels, height and width; a filter of 3 x 3 with a border of one. */
enum { IMAGES = 2, IN = 4, OUT = 8, SIDE = 10, IMAGE = SIDE * SIDE, ROOM = 32 << 20 };
static const float one = 1, zero = 0;

static cudnnStatus_t tensor(cudnnTensorDescriptor_t *d, int n, int c, int h, int w)
{
    cudnnStatus_t status = cudnnCreateTensorDescriptor(d);
    return status != CUDNN_STATUS_SUCCESS
               ? status
               : cudnnSetTensor4dDescriptor(*d, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, n, c, h, w);
}

struct layer {
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t how;
    std::vector<float> vx = random_floats(IMAGES * IN * IMAGE, 1), vw = random_floats(OUT * IN * 9, 2),
                       vy = random_floats(IMAGES * OUT * IMAGE, 3);
};

static cudnnStatus_t prepare(layer *l)
{
    cudnnStatus_t s = tensor(&l->x, IMAGES, IN, SIDE, SIDE);
    if (s == CUDNN_STATUS_SUCCESS)
        s = tensor(&l->y, IMAGES, OUT, SIDE, SIDE);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnCreateFilterDescriptor(&l->w);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnSetFilter4dDescriptor(l->w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, OUT, IN, 3, 3);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnCreateConvolutionDescriptor(&l->how);
    if (s == CUDNN_STATUS_SUCCESS)
        s = cudnnSetConvolution2dDescriptor(l->how, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
    return s == CUDNN_STATUS_SUCCESS ? cudnnSetConvolutionMathType(l->how, CUDNN_FMA_MATH) : s;
}

/* Calls `use` with every product of the convolution: places in x, w and y. */
template <class F> static void products(F use)
{
    for (int n = 0; n < IMAGES; n++)
        for (int o = 0; o < OUT; o++)
            for (int i = 0; i < IN; i++)
                for (int at = 0; at < IMAGE * 9; at++) {
                    int y = at / 9 / SIDE, x = at / 9 % SIDE, v = y + at % 9 / 3 - 1, u = x + at % 3 - 1;
                    if (v >= 0 && v < SIDE && u >= 0 && u < SIDE)
                        use((n * IN + i) * IMAGE + v * SIDE + u, (o * IN + i) * 9 + at % 9,
                            (n * OUT + o) * IMAGE + y * SIDE + x);
                }
}

static void compare(checker *check, const std::vector<float> &got, const std::vector<double> &want, double tolerance)
{
    for (size_t i = 0; i < want.size(); i++)
        check->near(got[i], want[i], tolerance, "value", i);
}

static void forward(checker *check)
{
    layer l;
    DNN(prepare(&l));
    float *x = to_device(l.vx), *w = to_device(l.vw), *y = device_array<float>(l.vy.size());
    DNN(cudnnConvolutionForward(handle, &one, l.x, x, l.w, w, l.how, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
                                device_array<char>(ROOM), ROOM, &zero, l.y, y));
    std::vector<double> want(l.vy.size());
    products([&](int at, int k, int to) { want[to] += (double)l.vx[at] * l.vw[k]; });
    compare(check, to_host(y, want.size()), want, 1e-4);
}

static void to_data(checker *check)
{
    layer l;
    DNN(prepare(&l));
    float *dx = device_array<float>(l.vx.size()), *w = to_device(l.vw), *dy = to_device(l.vy);
    DNN(cudnnConvolutionBackwardData(handle, &one, l.w, w, l.y, dy, l.how, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1,
                                     device_array<char>(ROOM), ROOM, &zero, l.x, dx));
    std::vector<double> want(l.vx.size());
    products([&](int at, int k, int to) { want[at] += (double)l.vy[to] * l.vw[k]; });
    compare(check, to_host(dx, want.size()), want, 1e-4);
}

static void to_filter(checker *check)
{
    layer l;
    DNN(prepare(&l));
    float *x = to_device(l.vx), *dw = device_array<float>(l.vw.size()), *dy = to_device(l.vy);
    DNN(cudnnConvolutionBackwardFilter(handle, &one, l.x, x, l.y, dy, l.how, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1,
                                       device_array<char>(ROOM), ROOM, &zero, l.w, dw));
    std::vector<double> want(l.vw.size());
    products([&](int at, int k, int to) { want[k] += (double)l.vy[to] * l.vx[at]; });
    compare(check, to_host(dw, want.size()), want, 1e-4);
}

static void norm(checker *check)
{
    const int n = IMAGES * IN * IMAGE, each = IMAGES * IMAGE;
    std::vector<float> vx = random_floats(n, 4), scale = random_floats(IN, 5), bias = random_floats(IN, 6);
    cudnnTensorDescriptor_t d, per_channel;
    DNN(tensor(&d, IMAGES, IN, SIDE, SIDE));
    DNN(tensor(&per_channel, 1, IN, 1, 1));
    float *x = to_device(vx), *y = device_array<float>(n), *mean = device_array<float>(IN),
          *inverse = device_array<float>(IN);
    DNN(cudnnBatchNormalizationForwardTraining(handle, CUDNN_BATCHNORM_SPATIAL, &one, &zero, d, x, d, y, per_channel,
                                               to_device(scale), to_device(bias), 1.0, NULL, NULL, 1e-5, mean,
                                               inverse));
    std::vector<double> want(n);
    for (int c = 0; c < IN; c++) {
        double sum = 0, square = 0;
        for (int i = 0; i < each; i++) {
            double v = vx[(i / IMAGE * IN + c) * IMAGE + i % IMAGE];
            sum += v;
            square += v * v;
        }
        double m = sum / each, variance = square / each - m * m;
        for (int i = 0; i < each; i++) {
            int at = (i / IMAGE * IN + c) * IMAGE + i % IMAGE;
            want[at] = (vx[at] - m) / sqrt(variance + 1e-5) * scale[c] + bias[c];
        }
    }
    compare(check, to_host(y, n), want, 1e-4);
}

static void pooling(checker *check, cudnnPoolingMode_t mode)
{
    const int n = IMAGES * IN * IMAGE;
    std::vector<float> vx = random_floats(n, 7);
    cudnnTensorDescriptor_t from, to;
    cudnnPoolingDescriptor_t how;
    DNN(tensor(&from, IMAGES, IN, SIDE, SIDE));
    DNN(tensor(&to, IMAGES, IN, SIDE / 2, SIDE / 2));
    DNN(cudnnCreatePoolingDescriptor(&how));
    DNN(cudnnSetPooling2dDescriptor(how, mode, CUDNN_NOT_PROPAGATE_NAN, 2, 2, 0, 0, 2, 2));
    float *x = to_device(vx), *y = device_array<float>(n / 4);
    DNN(cudnnPoolingForward(handle, how, &one, from, x, &zero, to, y));
    std::vector<double> want(n / 4);
    for (int i = 0; i < n / 4; i++) {
        int side = SIDE / 2, at = i / (side * side) * IMAGE + i / side % side * 2 * SIDE + i % side * 2;
        double a = vx[at], b = vx[at + 1], c = vx[at + SIDE], d = vx[at + SIDE + 1];
        want[i] = mode == CUDNN_POOLING_MAX ? fmax(fmax(a, b), fmax(c, d)) : (a + b + c + d) / 4;
    }
    compare(check, to_host(y, want.size()), want, 1e-6);
}

static void largest(checker *check)
{
    pooling(check, CUDNN_POOLING_MAX);
}

static void average(checker *check)
{
    pooling(check, CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING);
}

static void softmax(checker *check)
{
    const int rows = 20, columns = 33;
    std::vector<float> vx = random_floats(rows * columns, 8);
    cudnnTensorDescriptor_t d;
    DNN(tensor(&d, rows, columns, 1, 1));
    float *x = to_device(vx), *y = device_array<float>(vx.size());
    DNN(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &one, d, x, &zero, d, y));
    std::vector<double> want(vx.size());
    for (int r = 0; r < rows; r++) {
        double sum = 0;
        for (int c = 0; c < columns; c++)
            sum += exp((double)vx[r * columns + c]);
        for (int c = 0; c < columns; c++)
            want[r * columns + c] = exp((double)vx[r * columns + c]) / sum;
    }
    compare(check, to_host(y, vx.size()), want, 1e-6);
}

static void activation(checker *check)
{
    std::vector<float> vx = random_floats(IMAGES * IN * IMAGE, 9);
    cudnnTensorDescriptor_t d;
    cudnnActivationDescriptor_t how;
    DNN(tensor(&d, IMAGES, IN, SIDE, SIDE));
    DNN(cudnnCreateActivationDescriptor(&how));
    for (cudnnActivationMode_t mode : {CUDNN_ACTIVATION_RELU, CUDNN_ACTIVATION_TANH, CUDNN_ACTIVATION_SIGMOID}) {
        DNN(cudnnSetActivationDescriptor(how, mode, CUDNN_NOT_PROPAGATE_NAN, 0));
        float *x = to_device(vx), *y = device_array<float>(vx.size());
        DNN(cudnnActivationForward(handle, how, &one, d, x, &zero, d, y));
        std::vector<float> got = to_host(y, vx.size());
        for (size_t i = 0; i < vx.size(); i++) {
            double v = vx[i];
            check->near(got[i],
                        mode == CUDNN_ACTIVATION_RELU   ? fmax(v, 0)
                        : mode == CUDNN_ACTIVATION_TANH ? tanh(v)
                                                        : 1 / (1 + exp(-v)),
                        1e-5, "value", i);
        }
    }
}

static const struct {
    const char *name;
    void (*run)(checker *check);
} cases[] = {{"forward", forward}, {"to_data", to_data}, {"to_filter", to_filter}, {"norm", norm},
             {"largest", largest}, {"average", average}, {"softmax", softmax},     {"activation", activation}};

int main(int argc, char **argv)
{
    cudnnStatus_t status = cudnnCreate(&handle);
    if (status != CUDNN_STATUS_SUCCESS) {
        printf("FAIL cudnnCreate: %s\n", cudnnGetErrorString(status));
        return 1;
    }
    int result = run_cases(argc, argv, cases, [](checker *check, const auto &c) { c.run(check); });
    cudnnDestroy(handle);
    return result;
}
