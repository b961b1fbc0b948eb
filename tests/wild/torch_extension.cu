#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

#define CHECK_CUDA(x) TORCH_CHECK((x).is_cuda(), #x " must be a CUDA tensor")
#define CHECK_INPUT(x) CHECK_CUDA(x); TORCH_CHECK((x).is_contiguous(), #x " must be contiguous")

template <typename scalar_t>
__global__ void gelu_kernel(const scalar_t* __restrict__ in, scalar_t* __restrict__ out, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) {
    const float v = static_cast<float>(in[i]);
    out[i] = static_cast<scalar_t>(0.5f * v * (1.0f + erff(v * 0.70710678f)));
  }
}

__global__ void layer_norm_kernel(const float* x, const float* w, const float* b, float* y, int cols, float eps) {
  extern __shared__ float smem[];
  const float* row = x + blockIdx.x * cols;
  float s = 0.f, s2 = 0.f;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) { s += row[c]; s2 += row[c] * row[c]; }
  smem[threadIdx.x] = s; smem[threadIdx.x + blockDim.x] = s2;
  __syncthreads();
  for (int o = blockDim.x / 2; o > 0; o /= 2) {
    if (threadIdx.x < o) { smem[threadIdx.x] += smem[threadIdx.x + o]; smem[threadIdx.x + blockDim.x] += smem[threadIdx.x + blockDim.x + o]; }
    __syncthreads();
  }
  const float mean = smem[0] / cols, var = smem[blockDim.x] / cols - mean * mean, r = rsqrtf(var + eps);
  for (int c = threadIdx.x; c < cols; c += blockDim.x) y[blockIdx.x * cols + c] = (row[c] - mean) * r * w[c] + b[c];
}

torch::Tensor gelu(const torch::Tensor& input) {
  CHECK_INPUT(input);
  const at::cuda::OptionalCUDAGuard guard(device_of(input));
  auto output = torch::empty_like(input);
  const int64_t n = input.numel();
  const int threads = 256;
  const int blocks = static_cast<int>((n + threads - 1) / threads);
  AT_DISPATCH_FLOATING_TYPES_AND_HALF(input.scalar_type(), "gelu", [&] {
    gelu_kernel<scalar_t><<<blocks, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        input.data_ptr<scalar_t>(), output.data_ptr<scalar_t>(), n);
  });
  return output;
}

torch::Tensor layer_norm(torch::Tensor x, torch::Tensor w, torch::Tensor b, double eps) {
  CHECK_INPUT(x);
  TORCH_CHECK(x.dim() == 2, "x must have two dimensions");
  TORCH_CHECK(w.size(0) == x.size(1) && b.size(0) == x.size(1), "shapes");
  auto y = torch::empty_like(x);
  const int rows = x.size(0), cols = x.size(1), threads = 128;
  layer_norm_kernel<<<rows, threads, 2 * threads * sizeof(float)>>>(
      x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), cols, (float)eps);
  return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("gelu", &gelu);
  m.def("layer_norm", &layer_norm);
}
