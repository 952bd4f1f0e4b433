// Small model files made in memory, for tests only.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace bolide::test {

// A folder that goes away with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "bolide-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, const std::string& contents) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << contents;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

template <class T>
std::string raw(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

inline std::string gguf_string(const std::string& text) { return raw<uint64_t>(text.size()) + text; }

// Collects entries and tensors, then writes the file. Counts, version and so on can be set wrong on purpose.
struct GgufBuilder {
  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t alignment = 32;
  uint64_t extra_tensors = 0, extra_entries = 0;  // added to the counts in the header
  std::vector<std::string> entries, tensors;
  std::string data;

  GgufBuilder& entry(const std::string& key, uint32_t type, const std::string& value) {
    entries.push_back(gguf_string(key) + raw(type) + value);
    return *this;
  }
  GgufBuilder& u32(const std::string& key, uint32_t value) { return entry(key, 4, raw(value)); }
  GgufBuilder& f32(const std::string& key, float value) { return entry(key, 6, raw(value)); }
  GgufBuilder& text(const std::string& key, const std::string& value) { return entry(key, 8, gguf_string(value)); }
  GgufBuilder& texts(const std::string& key, const std::vector<std::string>& values) {
    std::string list = raw<uint32_t>(8) + raw<uint64_t>(values.size());
    for (const std::string& value : values) list += gguf_string(value);
    return entry(key, 9, list);
  }
  // dims in the file's order, innermost first.
  GgufBuilder& tensor_at(const std::string& name, const std::vector<int64_t>& dims, uint32_t type, uint64_t offset) {
    std::string info = gguf_string(name) + raw<uint32_t>(static_cast<uint32_t>(dims.size()));
    for (const int64_t dim : dims) info += raw(dim);
    tensors.push_back(info + raw(type) + raw(offset));
    return *this;
  }
  GgufBuilder& tensor(const std::string& name, const std::vector<int64_t>& dims, uint32_t type,
                      const std::string& bytes) {
    data.resize((data.size() + alignment - 1) / alignment * alignment, '\0');
    tensor_at(name, dims, type, data.size());
    data += bytes;
    return *this;
  }
  GgufBuilder& floats(const std::string& name, const std::vector<int64_t>& dims, const std::vector<float>& values) {
    return tensor(name, dims, 0, std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4));
  }
  std::string build() const {
    std::string file = magic + raw(version) + raw<uint64_t>(tensors.size() + extra_tensors) +
                       raw<uint64_t>(entries.size() + extra_entries);
    for (const std::string& entry : entries) file += entry;
    for (const std::string& info : tensors) file += info;
    file.resize((file.size() + alignment - 1) / alignment * alignment, '\0');
    return file + data;
  }
};

inline std::string safetensors_file(const std::string& header, const std::string& data) {
  return raw<uint64_t>(header.size()) + header + data;
}

// {"name": {"dtype": ..., "shape": ..., "data_offsets": [begin, end]}} for one tensor, without the braces around.
inline std::string safetensors_entry(const std::string& name, const std::string& dtype, const std::string& shape,
                                     uint64_t begin, uint64_t end) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", name, dtype, shape, begin, end);
}

}  // namespace bolide::test
