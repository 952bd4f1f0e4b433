#include "device/cuda/library.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace bolide {
namespace {

namespace fs = std::filesystem;

TEST(CudaLibrary, OpensAndFinds) {
  static constexpr const char* kFiles[] = {"libnowhere.so.1", "libm.so.6"};
  const fs::path folders[] = {"/nowhere", ""};
  const auto library = Library::open("mathematics", kFiles, folders);
  ASSERT_TRUE(library.has_value()) << library.error().text;
  double (*cosine)(double) = nullptr;
  ASSERT_TRUE(library->find("cos", &cosine).has_value());
  EXPECT_EQ(cosine(0), 1);
  const auto missing = library->find("no_such_function");
  ASSERT_FALSE(missing.has_value());
  EXPECT_NE(missing.error().text.find("no_such_function"), std::string::npos);
}

TEST(CudaLibrary, NamesThePlaces) {
  static constexpr const char* kFiles[] = {"libnowhere.so.1"};
  const fs::path folders[] = {"/one", "", "/two"};
  const auto library = Library::open("Nowhere", kFiles, folders);
  ASSERT_FALSE(library.has_value());
  EXPECT_EQ(library.error().code, Code::kUnavailable);
  for (const char* part : {"Nowhere", "libnowhere.so.1", "/one", "the loader's path", "/two", "--cuda-libs"})
    EXPECT_NE(library.error().text.find(part), std::string::npos) << part << ": " << library.error().text;
}

// A Python beside PATH, PYTHONPATH, and the folder that was asked for, which comes first.
TEST(CudaLibrary, LooksWherePythonPackagesAre) {
  const fs::path root = fs::temp_directory_path() / ("bolide_library_test_" + std::to_string(getpid()));
  const fs::path beside = root / "env/lib/python3.12/site-packages/nvidia/cublas/lib";
  const fs::path named = root / "packages/nvidia/cudnn/lib";
  fs::create_directories(beside);
  fs::create_directories(named);
  fs::create_directories(root / "env/bin");
  const std::string path = std::getenv("PATH") != nullptr ? std::getenv("PATH") : "";
  ASSERT_EQ(setenv("PATH", ((root / "env/bin").string() + ":" + path).c_str(), 1), 0);
  ASSERT_EQ(setenv("PYTHONPATH", (":" + (root / "packages").string()).c_str(), 1), 0);
  const auto folders = find_cuda_libraries("/asked/for").folders;
  ASSERT_EQ(setenv("PATH", path.c_str(), 1), 0);
  unsetenv("PYTHONPATH");
  ASSERT_FALSE(folders.empty());
  EXPECT_EQ(folders[0], "/asked/for");
  for (const fs::path& folder : {beside, named})
    EXPECT_NE(std::find(folders.begin(), folders.end(), folder), folders.end()) << folder;
  fs::remove_all(root);
}

}  // namespace
}  // namespace bolide
