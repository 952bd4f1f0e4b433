#include "cli/config_file.h"

#include <gtest/gtest.h>

#include "cli/cli.h"
#include "formats/test_files.h"

namespace bolide::cli {
namespace {

struct Config {
  int32_t port = 8000;
  int64_t body_bytes = 1024;
  double drain_seconds = 30;
  bool no_auth = false;
  std::string host = "127.0.0.1";
};
constexpr Option<Config> kOptions[] = {
    {"port", &Config::port, {.min = 0, .max = 65535}, "TCP port"},
    {"body_bytes", &Config::body_bytes, {.unit = "bytes", .min = 1}, "a body at most"},
    {"drain_seconds", &Config::drain_seconds, {.unit = "s", .min = 0}, "to end"},
    {"no_auth", &Config::no_auth, {}, "no keys"},
    {"host", &Config::host, {}, "address"},
};

Result<ConfigFile> read(std::string_view yaml, Config& config, std::string_view given = "") {
  BOLIDE_TRY(ConfigFile file, parse_config(yaml, "serve.yaml"));
  BOLIDE_TRY(apply_config(file, bind_options(config, kOptions), [&](std::string_view name) { return name == given; }));
  return file;
}
std::string error_of(std::string_view yaml) {
  Config config;
  const auto file = read(yaml, config);
  return file ? "" : file.error().text;
}

TEST(ConfigFile, SetsWhatTheCommandLineDidNot) {
  Config config;
  const auto file = read(
      "# mine\nmodels: {small: a.gguf, big: ./b}\nport: 9000\nbody-bytes: 2MiB\n"
      "no-auth: true\ndrain_seconds: 1.5\nhost: \"::1\"\n",
      config, "port");
  ASSERT_TRUE(file.has_value()) << file.error().text;
  EXPECT_EQ(file->models, (std::vector<std::string>{"small=a.gguf", "big=./b"}));
  EXPECT_EQ(config.port, 8000);
  EXPECT_EQ(config.body_bytes, 2 << 20);
  EXPECT_EQ(config.drain_seconds, 1.5);
  EXPECT_TRUE(config.no_auth);
  EXPECT_EQ(config.host, "::1");
}

TEST(ConfigFile, ModelsAreAListOrNames) {
  EXPECT_EQ(parse_config("models: [a.gguf, x=b]", "f")->models, (std::vector<std::string>{"a.gguf", "x=b"}));
  EXPECT_EQ(parse_config("models: a.gguf", "f")->models, std::vector<std::string>{"a.gguf"});
  EXPECT_TRUE(parse_config("", "f")->models.empty());
  EXPECT_TRUE(parse_config("# nothing\n", "f").has_value());
}

TEST(ConfigFile, ErrorsNameLineAndKey) {
  EXPECT_EQ(error_of("host: a\nprot: 1\n"), "serve.yaml, line 2: there is no option prot, did you mean port?");
  EXPECT_EQ(error_of("port: 70000\n"), "serve.yaml, line 1: port is \"70000\"; give an integer, 0 to 65535");
  EXPECT_EQ(error_of("port:\n"), "serve.yaml, line 1: port needs one value; \"\" for an empty one");
  EXPECT_EQ(error_of("port: [1, 2]\n"), "serve.yaml, line 1: port needs one value, not a list or a mapping");
  EXPECT_EQ(error_of("port: 1\n\nport: 2\n"), "serve.yaml, line 3: port is given twice");
  EXPECT_EQ(error_of("- a\n"), "serve.yaml, line 1: there must be \"option: value\" on each line");
  for (const char* yaml : {"host: \"a", "host: \"a\n", "host: 'a\n\n", "host: 'a''\n", "host: \"a\\\"  \n"})
    EXPECT_EQ(error_of(yaml), "serve.yaml, line 1: a text in quotation marks, which begins here or above, does not end")
        << yaml;
  EXPECT_EQ(error_of("host: \"a\nport: 1\n").substr(0, 19), "serve.yaml, line 2:");
  EXPECT_EQ(error_of("host: \"a\n  b\"\nport: 1\n"), "");
  EXPECT_EQ(error_of("models: [[a]]\n"), "serve.yaml, line 1: a model is given as [NAME=]MODEL");
  EXPECT_NE(error_of("a: 1\n---\nb: 2\n"), "");
  EXPECT_NE(error_of("host: \xff\n"), "");
  EXPECT_NE(error_of(std::string(100000, '[')), "");
  EXPECT_NE(error_of(std::string(100000, '{')), "");
  EXPECT_NE(error_of("port: *nobody\n"), "");
}

TEST(ConfigFile, WhatItWritesItReads) {
  Config config{.port = 1, .body_bytes = 77, .drain_seconds = 0.25, .no_auth = true, .host = "a \"b\" # c: ü\n"};
  const OptionGroup group{"Server", bind_options(config, kOptions)};
  const std::string models[] = {"x=a: b.gguf", "# y"};
  const std::string text = config_text({&group, 1}, models);
  Config again;
  const auto file = read(text, again);
  ASSERT_TRUE(file.has_value()) << file.error().text << "\n" << text;
  EXPECT_EQ(file->models, (std::vector<std::string>{models[0], models[1]}));
  EXPECT_EQ(again.port, config.port);
  EXPECT_EQ(again.body_bytes, config.body_bytes);
  EXPECT_EQ(again.drain_seconds, config.drain_seconds);
  EXPECT_EQ(again.no_auth, config.no_auth);
  EXPECT_EQ(again.host, config.host);
}

struct Said {
  int code;
  std::string out, err;
};
Said serve(std::vector<std::string> words) {
  words.insert(words.begin(), {"bolide", "serve"});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = run_program(static_cast<int>(argv.size()), argv.data(), Version{});
  Said said{code, ::testing::internal::GetCapturedStdout(), {}};
  said.err = ::testing::internal::GetCapturedStderr();
  return said;
}

TEST(ConfigFile, OfTheServer) {
  const test::TemporaryFolder folder;
  const std::string path =
      folder.write("serve.yaml", "models: {a: x.gguf}\nport: 9000\nthreads: 3\ntemplate-file: t.jinja\n");
  const Said said = serve({"--config", path, "--port", "9001", "--print-config"});
  EXPECT_EQ(said.code, 0) << said.err;
  for (const char* line : {"  - \"a=x.gguf\"\n", "\nport: 9001\n", "\nthreads: 3\n", "\ntemplate-file: \"t.jinja\"\n",
                           "\nhost: \"127.0.0.1\"\n", "\nmax-sequences: 0\n"})
    EXPECT_NE(said.out.find(line), std::string::npos) << line << said.out;
  // What it prints it reads.
  const std::string again = folder.write("again.yaml", said.out);
  EXPECT_EQ(serve({"--config", again, "--print-config"}).out, said.out);

  EXPECT_NE(serve({"other.gguf", "--config", path, "--print-config"}).out.find("models:\n  - \"other.gguf\"\n\n"),
            std::string::npos);
  EXPECT_NE(serve({}).err.find("there is no model"), std::string::npos);
  EXPECT_NE(serve({"--config", "/no/such/file"}).err.find("/no/such/file"), std::string::npos);
  const std::string wrong = folder.write("wrong.yaml", "models: a\nprot: 1\n");
  EXPECT_NE(serve({"--config", wrong}).err.find("line 2: there is no option prot, did you mean port?"),
            std::string::npos);
}

}  // namespace
}  // namespace bolide::cli
