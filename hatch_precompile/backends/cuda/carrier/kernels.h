// Kernels that lie in this library, for every device of the process, and the driver that launches them.
#include <dlfcn.h>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>

namespace precompiled {

// Nothing here is linked with the driver. torch has loaded it by the time that a tensor lies on a GPU.
struct Driver {
    decltype(&::cuGetErrorString) error_string;
    decltype(&::cuLibraryLoadData) load;
    decltype(&::cuLibraryGetKernel) kernel;
    decltype(&::cuKernelSetAttribute) set;
    decltype(&::cuLaunchKernel) launch;
    decltype(&::cuCtxGetCurrent) context_here;
    decltype(&::cuCtxSetCurrent) enter_context;
    decltype(&::cuDevicePrimaryCtxRetain) context_of;

    Driver() {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW);
        if (!driver) throw std::runtime_error(std::string("CUDA driver error: ") + dlerror());
        find(driver, "cuGetErrorString", error_string);
        find(driver, "cuLibraryLoadData", load);
        find(driver, "cuLibraryGetKernel", kernel);
        find(driver, "cuKernelSetAttribute", set);
        find(driver, "cuLaunchKernel", launch);
        find(driver, "cuCtxGetCurrent", context_here);
        find(driver, "cuCtxSetCurrent", enter_context);
        find(driver, "cuDevicePrimaryCtxRetain", context_of);
    }

    // CUDA's runtime enters the context of a device by itself, the driver does not. A thread that has asked the
    // runtime for nothing yet is in none: one in which autograd calculates gradients, or one of a server's.
    void enter(int32_t device) const {
        CUcontext context = nullptr;
        check(context_here(&context));
        if (context) return;
        check(context_of(&context, device));
        check(enter_context(context));
    }

    void check(CUresult result) const {
        if (result == CUDA_SUCCESS) return;
        const char *said = nullptr;
        error_string(result, &said);
        throw std::runtime_error(std::string("CUDA driver error: ") + (said ? said : "unknown"));
    }

  private:
    template <typename Function> static void find(void *driver, const char *name, Function &function) {
        function = reinterpret_cast<Function>(dlsym(driver, name));
        if (!function) throw std::runtime_error(std::string("CUDA driver error: it is too old and has no ") + name);
    }
};

static const Driver &driver() {
    static const Driver it;
    return it;
}

// The driver loads a library into the context of each device in which one of its kernels runs. What a block may
// have of shared memory beyond 48 KB is asked for at each device.
class Kernel {
  public:
    constexpr Kernel(const char *image, const char *name, int shared)
        : image_(image), name_(name), shared_(shared) {}

    CUfunction on(int32_t device) {
        driver().enter(device);
        const uint64_t bit = uint64_t(1) << (device & 63);
        if (!(ready_.load(std::memory_order_acquire) & bit)) prepare(device, bit);
        return reinterpret_cast<CUfunction>(kernel_);
    }

  private:
    static constexpr int WITHOUT_ASKING = 48 * 1024;

    void prepare(int32_t device, uint64_t bit) {
        const Driver &it = driver();
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!kernel_) {
            CUlibrary library;
            CUkernel kernel;
            it.check(it.load(&library, image_, nullptr, nullptr, 0, nullptr, nullptr, 0));
            it.check(it.kernel(&kernel, library, name_));
            kernel_ = kernel;
        }
        if (shared_ > WITHOUT_ASKING)
            it.check(it.set(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared_, kernel_, device));
        ready_.fetch_or(bit, std::memory_order_release);
    }

    const char *image_, *name_;
    int shared_;
    CUkernel kernel_ = nullptr;
    std::atomic<uint64_t> ready_{0};
    std::mutex mutex_;
};

static inline int32_t device_of(AtenTensorHandle tensor) {
    int32_t index;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(tensor, &index));
    if (index < 0 || index > 63) throw std::runtime_error("kernels are for the devices 0 to 63 of a process");
    return index;
}

[[maybe_unused]] static inline int32_t current_device() {
    int32_t index;
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_device_index(&index));
    return index;
}

// Kernels are compiled for memory that begins at multiples of 16 bytes, as torch allocates it. Of a view that
// does not, they are given a copy. Where they write to it, `copy_back` is called after them.
class Aligned {
  public:
    explicit Aligned(RAIIAtenTensorHandle &tensor) {
        if (reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 16 == 0) return;
        AtenTensorHandle copy, kept;
        AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_clone_preserve_strides(tensor, &copy));
        given_ = RAIIAtenTensorHandle(tensor.release());
        tensor = RAIIAtenTensorHandle(copy);
        // The code that follows lets go of its tensors as soon as it can.
        AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(copy, &kept));
        copy_ = RAIIAtenTensorHandle(kept);
    }

    void copy_back() {
        if (given_.get()) AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_copy_(given_, copy_, 0));
    }

  private:
    RAIIAtenTensorHandle given_, copy_;
};

}  // namespace precompiled

// The last, since torch 2.15: whether it may start before the kernel that was launched last has ended. It never does.
static inline void launchKernel(CUfunction kernel, uint32_t x, uint32_t y, uint32_t z, uint32_t warps,
                                uint32_t shared, void *arguments[], cudaStream_t stream, bool = false) {
    const precompiled::Driver &it = precompiled::driver();
    it.check(it.launch(kernel, x, y, z, 32 * warps, 1, 1, shared, stream, arguments, nullptr));
}
