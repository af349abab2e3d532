// A GPU that is described and has memory, and computes nothing: enough for torch to trace and compile for it.
//
// Loaded before libcudart (LD_PRELOAD), whose functions it has; as it is called libcuda.so.1, it is the driver,
// too. What torch calls and is not here is libcudart's own, which finds no driver and says so.
//
// A launch is an error, so that nothing is ever taken for a result. While launches are recorded, those of the
// driver are noted in place of that, and what they would have written stays as it is. Torch's own are passed
// over, and after one of these no memory can be read: it could have written to any.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES 2
#define OK cudaSuccess

// The card: HATCH_PRECOMPILE_CARD, numbers in the order of `struct card` and the name after them.
static struct card {
    int major, minor, multiprocessors, threads;
    long long shared, shared_by_all, memory, l2;
    char name[128];
} card;
static pthread_once_t read_once = PTHREAD_ONCE_INIT;

static void read_card(void) {
    const char *given = getenv("HATCH_PRECOMPILE_CARD");
    if (!given || sscanf(given, "%d %d %d %d %lld %lld %lld %lld %127[^\n]", &card.major, &card.minor,
                         &card.multiprocessors, &card.threads, &card.shared, &card.shared_by_all, &card.memory,
                         &card.l2, card.name) != 9) {
        fprintf(stderr, "HATCH_PRECOMPILE_CARD does not describe a card\n");
        abort();
    }
}

static const struct card *the_card(void) {
    pthread_once(&read_once, read_card);
    return &card;
}

static __thread int current;
static __thread cudaError_t last;

// The driver is in no context before its thread has asked the runtime for something.
static __thread CUcontext context;
static CUcontext context_of(int device) { return (CUcontext)(intptr_t)(device + 1); }
static void enter(void) { context = context_of(current); }

static cudaError_t failed(cudaError_t error) { return last = error; }
static int is_device(int device) { return device >= 0 && device < DEVICES; }

// -- devices ----------------------------------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int *count) { *count = DEVICES; return OK; }
cudaError_t cudaGetDevice(int *device) { *device = current; return OK; }
cudaError_t cudaSetDevice(int device) {
    if (!is_device(device)) return failed(cudaErrorInvalidDevice);
    current = device;
    enter();
    return OK;
}
cudaError_t cudaDriverGetVersion(int *version) { *version = CUDART_VERSION; return OK; }
cudaError_t cudaRuntimeGetVersion(int *version) { *version = CUDART_VERSION; return OK; }
cudaError_t cudaGetLastError(void) { cudaError_t error = last; last = OK; return error; }
cudaError_t cudaPeekAtLastError(void) { return last; }
cudaError_t cudaDeviceSynchronize(void) { enter(); return OK; }

#undef cudaGetDeviceProperties
#if CUDART_VERSION < 13000
#define cudaGetDeviceProperties cudaGetDeviceProperties_v2
#endif
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device) {
    const struct card *it = the_card();
    if (!is_device(device)) return failed(cudaErrorInvalidDevice);
    memset(prop, 0, sizeof *prop);
    snprintf(prop->name, sizeof prop->name, "%s", it->name);
    prop->major = it->major;
    prop->minor = it->minor;
    prop->multiProcessorCount = it->multiprocessors;
    prop->maxThreadsPerMultiProcessor = it->threads;
    prop->sharedMemPerBlock = 49152;
    prop->sharedMemPerBlockOptin = it->shared;
    prop->sharedMemPerMultiprocessor = it->shared_by_all;
    prop->totalGlobalMem = it->memory;
    prop->l2CacheSize = it->l2;
    prop->warpSize = 32;
    prop->maxThreadsPerBlock = 1024;
    prop->regsPerMultiprocessor = prop->regsPerBlock = 65536;
    prop->maxGridSize[0] = 2147483647;
    prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
    prop->maxThreadsDim[0] = prop->maxThreadsDim[1] = 1024;
    prop->maxThreadsDim[2] = 64;
    prop->memoryBusWidth = 5120;
    prop->memPitch = 2147483647;
    prop->textureAlignment = 512;
    prop->canMapHostMemory = prop->unifiedAddressing = 1;
    prop->pciBusID = device;
    return OK;
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    const struct card *it = the_card();
    if (!is_device(device)) return failed(cudaErrorInvalidDevice);
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = it->major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = it->minor; break;
    case cudaDevAttrMultiProcessorCount: *value = it->multiprocessors; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = it->threads; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)it->shared; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = (int)it->shared_by_all; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 49152; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = 65536; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    default: *value = 0;
    }
    return OK;
}
cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int device) {
    snprintf(id, size, "0000:%02x:00.0", device);
    return OK;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 0; *greatest = -5; return OK; }
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int other) { *can = 0; return OK; }

// -- memory: the host's -----------------------------------------------------------------------------------

// Where something was copied to from the host, or set: spans in order, none beside another. The rest of the
// memory has what kernels would have written, and cannot be read.
struct span { const char *from, *to; };
static struct span *known;
static size_t known_count, known_room;
static pthread_mutex_t knowing = PTHREAD_MUTEX_INITIALIZER;

static size_t first_that_ends_after(const char *place) {
    size_t low = 0, high = known_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (known[middle].to > place) high = middle;
        else low = middle + 1;
    }
    return low;
}

static int is_known(const void *memory, size_t size) {
    const char *from = memory;
    pthread_mutex_lock(&knowing);
    size_t at = first_that_ends_after(from);
    int found = !size || (at < known_count && known[at].from <= from && known[at].to >= from + size);
    pthread_mutex_unlock(&knowing);
    return found;
}

// Take what lies between two places out of the spans, and put a span there instead if it is known from now on.
static void note(const void *memory, size_t size, int is_known_now) {
    const char *from = memory, *to = from + size;
    struct span in_place[3];
    size_t count = 0;
    if (!size) return;
    pthread_mutex_lock(&knowing);
    size_t begin = first_that_ends_after(from), end = begin;
    while (end < known_count && known[end].from < to) end++;
    if (is_known_now) {  // with what lies right beside it
        if (begin > 0 && known[begin - 1].to == from) begin--;
        if (end < known_count && known[end].from == to) end++;
        if (end > begin && known[begin].from < from) from = known[begin].from;
        if (end > begin && known[end - 1].to > to) to = known[end - 1].to;
        in_place[count++] = (struct span){from, to};
    } else if (end > begin) {
        if (known[begin].from < from) in_place[count++] = (struct span){known[begin].from, from};
        if (known[end - 1].to > to) in_place[count++] = (struct span){to, known[end - 1].to};
    }
    if (known_count + count > known_room) {
        known_room = 2 * known_room + 64;
        known = realloc(known, known_room * sizeof *known);
        if (!known) abort();
    }
    memmove(known + begin + count, known + end, (known_count - end) * sizeof *known);
    memcpy(known + begin, in_place, count * sizeof *known);
    known_count += count + begin - end;
    pthread_mutex_unlock(&knowing);
}

// For Python: what is there now would be a kernel's.
void precompile_unknown(const void *memory, size_t size) { note(memory, size, 0); }

static cudaError_t copied(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
    int from_host = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost;
    int to_host = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost;
    int is = from_host || is_known(from, size);
    enter();
    if (kind == cudaMemcpyDefault || (to_host && !is)) return failed(cudaErrorNotSupported);
    memmove(to, from, size);
    if (!to_host) note(to, size, is);
    return OK;
}

static void *allocated(size_t size) { return aligned_alloc(512, (size + 511) / 512 * 512); }

cudaError_t cudaMemGetInfo(size_t *left, size_t *total) { *left = *total = the_card()->memory; return OK; }
cudaError_t cudaMalloc(void **pointer, size_t size) {
    enter();
    *pointer = allocated(size);
    if (!*pointer) return failed(cudaErrorMemoryAllocation);
    note(*pointer, size, 0);
    return OK;
}
cudaError_t cudaFree(void *pointer) { free(pointer); return OK; }
cudaError_t cudaHostAlloc(void **pointer, size_t size, unsigned flags) {
    *pointer = allocated(size);
    return *pointer ? OK : failed(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void *pointer) { free(pointer); return OK; }
cudaError_t cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
    return copied(to, from, size, kind);
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t s) {
    return copied(to, from, size, kind);
}
cudaError_t cudaMemcpyPeerAsync(void *to, int there, const void *from, int here, size_t size, cudaStream_t s) {
    return copied(to, from, size, cudaMemcpyDeviceToDevice);
}
static cudaError_t set(void *to, int value, size_t size) {
    enter();
    memset(to, value, size);
    note(to, size, 1);
    return OK;
}
cudaError_t cudaMemset(void *to, int value, size_t size) { return set(to, value, size); }
cudaError_t cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t s) { return set(to, value, size); }
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer) {
    memset(attributes, 0, sizeof *attributes);
    attributes->type = cudaMemoryTypeDevice;
    attributes->device = current;
    attributes->devicePointer = (void *)pointer;
    return OK;
}

// -- streams and events: all is done at once --------------------------------------------------------------

cudaError_t cudaStreamCreate(cudaStream_t *stream) { enter(); *stream = malloc(16); return OK; }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    return cudaStreamCreate(stream);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) { free(stream); return OK; }
cudaError_t cudaStreamQuery(cudaStream_t stream) { return OK; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return OK; }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) { return OK; }
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) { *priority = 0; return OK; }
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    *status = cudaStreamCaptureStatusNone;
    return OK;
}
// By each of its names; what else it would tell is told while a stream is captured only.
#define CAPTURE_INFO(name) \
    cudaError_t told_##name(cudaStream_t, enum cudaStreamCaptureStatus *, unsigned long long *) __asm__(#name); \
    cudaError_t told_##name(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id) { \
        *status = cudaStreamCaptureStatusNone; \
        if (id) *id = 0; \
        return OK; \
    }
CAPTURE_INFO(cudaStreamGetCaptureInfo)
CAPTURE_INFO(cudaStreamGetCaptureInfo_v2)
CAPTURE_INFO(cudaStreamGetCaptureInfo_v3)
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) { return OK; }
cudaError_t cudaEventCreate(cudaEvent_t *event) { enter(); *event = malloc(16); return OK; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { free(event); return OK; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return OK; }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) { return OK; }
cudaError_t cudaEventQuery(cudaEvent_t event) { return OK; }
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return OK; }
cudaError_t cudaEventElapsedTime(float *time, cudaEvent_t event, cudaEvent_t other) { *time = 1; return OK; }

// -- kernels of torch's own -------------------------------------------------------------------------------

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function) {
    memset(attributes, 0, sizeof *attributes);
    attributes->maxThreadsPerBlock = 1024;
    attributes->binaryVersion = attributes->ptxVersion = 10 * the_card()->major + the_card()->minor;
    return OK;
}
cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value) { return OK; }
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int size,
                                                                   size_t shared, unsigned flags) {
    *blocks = 1;
    return OK;
}
static int recording;
static cudaError_t torchs_own(void) {
    enter();
    if (!recording) return failed(cudaErrorNotSupported);
    pthread_mutex_lock(&knowing);
    known_count = 0;
    pthread_mutex_unlock(&knowing);
    return OK;
}
cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                             cudaStream_t stream) {
    return torchs_own();
}
cudaError_t __cudaLaunchKernel(void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                               cudaStream_t stream) {
    return torchs_own();
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function, void **arguments) {
    return torchs_own();
}

// -- the driver, as torch and our libraries look for it ---------------------------------------------------

struct launch {
    char kernel[128];
    unsigned grid[3], threads, shared;
    int device;
    const void *stream;
};
static struct launch *launches;
static int launched, room;
static pthread_mutex_t noting = PTHREAD_MUTEX_INITIALIZER;

// For Python: record launches from now on, or refuse them again; those that were, and how many.
void precompile_record(int on) { recording = on; launched = 0; }
int precompile_launches(const struct launch **first) { *first = launches; return launched; }

CUresult cuInit(unsigned flags) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *version) { *version = CUDA_VERSION; return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *device, int ordinal) { *device = ordinal; return CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int *count) { *count = DEVICES; return CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    return (CUresult)cudaDeviceGetAttribute(value, (enum cudaDeviceAttr)attribute, device);
}
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    *flags = 0;
    *active = 1;
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *its, CUdevice device) {
    *its = context_of(device);
    return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *found) { *found = context; return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext entered) {
    context = entered;
    if (entered) current = (int)(intptr_t)entered - 1;
    return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult error, const char **text) {
    *text = "there is no GPU, and what stands in for one computes nothing";
    return CUDA_SUCCESS;
}
CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr pointer) {
    return CUDA_ERROR_NOT_SUPPORTED;
}

// A library is the image that it was loaded from; a kernel, its name.
CUresult cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *options, void **values,
                           unsigned count, CUlibraryOption *more, void **more_values, unsigned more_count) {
    if (!recording || memcmp(image, "\177ELF", 4)) return CUDA_ERROR_INVALID_IMAGE;
    *library = (CUlibrary)image;
    return CUDA_SUCCESS;
}
CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    *kernel = (CUkernel)strdup(name);
    return *kernel ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device) {
    return is_device(device) && value <= the_card()->shared ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned width, unsigned height,
                        unsigned depth, unsigned shared, CUstream stream, void **parameters, void **extra) {
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!recording) return CUDA_ERROR_NOT_SUPPORTED;
    if (!context && !stream) return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&noting);
    if (launched == room) {
        struct launch *more = realloc(launches, (room + 1024) * sizeof *more);
        if (more) launches = more, room += 1024;
    }
    if (launched < room) {
        struct launch *it = launches + launched++;
        snprintf(it->kernel, sizeof it->kernel, "%s", (const char *)function);
        it->grid[0] = x, it->grid[1] = y, it->grid[2] = z;
        it->threads = width * height * depth;
        it->shared = shared;
        it->device = current;
        it->stream = stream;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&noting);
    return result;
}

// Products of matrices, as our libraries ask torch for them (AOTInductor's C functions: 0 is success). They write
// to memory that they are given, so that a call can go on behind them where launches are recorded.
static int by_torch(const char *name) {
    enter();
    return cuLaunchKernel((CUfunction)name, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) != CUDA_SUCCESS;
}
#define PRODUCT(name) \
    int name(void) { return by_torch(#name); }
PRODUCT(aoti_torch_cuda__int_mm_out)
PRODUCT(aoti_torch_cuda__scaled_mm_out)
PRODUCT(aoti_torch_cuda_addmm_out)
PRODUCT(aoti_torch_cuda_baddbmm_out)
PRODUCT(aoti_torch_cuda_bmm_out)
PRODUCT(aoti_torch_cuda_mm_dtype_out)
PRODUCT(aoti_torch_cuda_mm_out)

// The gradients of a convolution, likewise: in memory that is laid out as what they are gradients of.
static void *torchs(const char *name) {
    void *library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    return library ? dlsym(library, name) : NULL;
}
static int empty_like(void *tensor, void **made) {
    int (*dim)(void *, int64_t *) = torchs("aoti_torch_get_dim");
    int (*sizes)(void *, int64_t **) = torchs("aoti_torch_get_sizes");
    int (*strides)(void *, int64_t **) = torchs("aoti_torch_get_strides");
    int (*dtype)(void *, int32_t *) = torchs("aoti_torch_get_dtype");
    int (*type)(void *, int32_t *) = torchs("aoti_torch_get_device_type");
    int (*index)(void *, int32_t *) = torchs("aoti_torch_get_device_index");
    int (*empty)(int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, void **) =
        torchs("aoti_torch_empty_strided");
    int64_t count, *each, *step;
    int32_t kind, device, number;
    if (!dim || !sizes || !strides || !dtype || !type || !index || !empty) return 1;
    return dim(tensor, &count) || sizes(tensor, &each) || strides(tensor, &step) || dtype(tensor, &kind) ||
           type(tensor, &device) || index(tensor, &number) ||
           empty(count, each, step, kind, device, number, made);
}
int aoti_torch_cuda_convolution_backward(
    void *gradient, void *input, void *weight, const int64_t **bias, int64_t bias_count, const int64_t *stride,
    int64_t stride_count, const int64_t *padding, int64_t padding_count, const int64_t *dilation,
    int64_t dilation_count, int32_t transposed, const int64_t *output_padding, int64_t output_padding_count,
    int64_t groups, const int32_t *wanted, int64_t wanted_count, void **of_input, void **of_weight,
    void **of_bias) {
    if (by_torch("aoti_torch_cuda_convolution_backward")) return 1;
    // That of a bias is a sum, which inductor takes itself. What is not wanted has no place.
    return (wanted[0] && empty_like(input, of_input)) || (wanted[1] && empty_like(weight, of_weight)) ||
           wanted[2];
}

// What torch would load modules and link with.
#define REFUSED(name) \
    CUresult refused_##name(void) __asm__(#name); \
    CUresult refused_##name(void) { return CUDA_ERROR_NOT_SUPPORTED; }
REFUSED(cuFuncGetAttribute)
REFUSED(cuFuncSetAttribute)
REFUSED(cuFuncSetCacheConfig)
REFUSED(cuLaunchCooperativeKernel)
REFUSED(cuLinkAddData_v2)
REFUSED(cuLinkComplete)
REFUSED(cuLinkCreate_v2)
REFUSED(cuModuleGetFunction)
REFUSED(cuModuleLoad)
REFUSED(cuModuleLoadData)
REFUSED(cuModuleLoadDataEx)
REFUSED(cuModuleUnload)
REFUSED(cuOccupancyMaxActiveBlocksPerMultiprocessor)
REFUSED(cuTensorMapEncodeTiled)
