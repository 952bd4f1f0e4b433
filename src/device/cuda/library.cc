#include "device/cuda/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/knobs.h"

namespace bolide {
namespace {

namespace fs = std::filesystem;

// Folders in `parent` whose name starts with `prefix`, sorted; none if it cannot be read.
std::vector<fs::path> folders_in(const fs::path& parent, std::string_view prefix) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (fs::directory_iterator it(parent, ignored), end; !ignored && it != end; it.increment(ignored))
    if (it->path().filename().string().starts_with(prefix) && it->is_directory(ignored)) found.push_back(it->path());
  std::sort(found.begin(), found.end());
  return found;
}

void add_site_packages(const fs::path& site, std::vector<fs::path>& folders) {
  std::error_code ignored;
  for (const fs::path& package : folders_in(site / "nvidia", ""))
    if (const fs::path libraries = package / "lib";
        fs::is_directory(libraries, ignored) && std::find(folders.begin(), folders.end(), libraries) == folders.end())
      folders.push_back(libraries);
}

}  // namespace

Result<Library> Library::open(std::string_view name, std::span<const char* const> files,
                              std::span<const fs::path> folders) {
  std::string places, said;
  for (const fs::path& folder : folders) {
    for (const char* file : files) {
      const std::string path = (folder / file).string();
      std::error_code ignored;
      if (!folder.empty() && !fs::exists(path, ignored)) continue;
      if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
        Library library;
        library.name_ = name;
        library.path_ = path;
        library.handle_ = std::shared_ptr<void>(handle, [](void*) {});  // these libraries do not survive being closed
        return library;
      }
      if (const char* text = dlerror(); text != nullptr) said = text;
    }
    places += fmt::format("{}{}", places.empty() ? "" : ", ", folder.empty() ? "the loader's path" : folder.string());
  }
  return error(Code::kUnavailable, fmt::format("{} ({}) was not found in {} ({}); --cuda-libs DIR names another folder",
                                               name, fmt::join(files, " or "), places, said));
}

Result<void*> Library::find(const char* function) const {
  if (void* address = dlsym(handle_.get(), function)) return address;
  return error(Code::kUnavailable, fmt::format("{}: {} has no {}; a newer version is needed", path_, name_, function));
}

CudaLibraries find_cuda_libraries(const fs::path& first) {
  CudaLibraries where;
  if (!first.empty()) where.folders.push_back(first);
  where.folders.emplace_back();
  where.folders.emplace_back("/usr/local/cuda/lib64");
  for (const fs::path& site : folders_of("PYTHONPATH")) add_site_packages(site, where.folders);
  std::vector<fs::path> prefixes;
  for (const fs::path& bin : folders_of("PATH")) prefixes.push_back(bin.parent_path());
  for (const char* prefix : {"/usr", "/usr/local"}) prefixes.emplace_back(prefix);
  for (const fs::path& prefix : prefixes)
    for (const fs::path& python : folders_in(prefix / "lib", "python3"))
      for (const char* packages : {"site-packages", "dist-packages"})
        add_site_packages(python / packages, where.folders);
  return where;
}

Result<Library> open_cublaslt(const CudaLibraries& where) {
  static constexpr const char* kFiles[] = {"libcublasLt.so.13"};
  return Library::open("cuBLASLt", kFiles, where.folders);
}
Result<Library> open_cudnn(const CudaLibraries& where) {
  static constexpr const char* kFiles[] = {"libcudnn.so.9"};
  return Library::open("cuDNN", kFiles, where.folders);
}
Result<Library> open_nvml(const CudaLibraries& where) {
  static constexpr const char* kFiles[] = {"libnvidia-ml.so.1"};
  return Library::open("NVML", kFiles, where.folders);
}
Result<Library> open_nccl(const CudaLibraries& where) {
  static constexpr const char* kFiles[] = {"libnccl.so.2"};
  return Library::open("NCCL", kFiles, where.folders);
}

}  // namespace bolide
