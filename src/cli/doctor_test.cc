// What doctor says of machines that were made up.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/doctor_facts.h"

namespace bolide::cli {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

MachineFacts good_machine() {
  MachineFacts facts;
  facts.cpu.vendor = "AuthenticAMD";
  facts.cpu.model_name = "AMD EPYC";
  CpuFeatures& features = facts.cpu.features;
  features.avx2 = features.fma = features.f16c = features.bmi = true;
  features.avx512f = features.avx512bw = features.avx512dq = features.avx512vl = features.avx512cd = true;
  features.avx512_vnni = features.avx512_vbmi = features.avx512_bf16 = true;
  facts.cpu.logical_cpus = 16;
  facts.cpu.physical_cores = 8;
  facts.machine_cpus = 16;
  facts.load = 0.5;
  facts.memory_bytes = 64 * kGiB;
  facts.memory_available_bytes = 60 * kGiB;
  facts.huge_pages = "madvise";
  facts.nodes = {{0, 16, 64 * kGiB}};
  facts.open_files = 1024;
  facts.open_files_max = 524288;
  facts.locked_bytes = 8 << 20;
  facts.ports = {{8000, ""}};
  facts.models = {{"m.gguf", "", "gguf", 4 * kGiB, "ext4", false}};
  return facts;
}

void add_h200(MachineFacts& facts) {
  facts.nvidia_devices = 1;
  facts.nvidia_nodes = true;
  facts.gpus.built = true;
  facts.gpus.driver = "580.65.06";
  facts.gpus.driver_cuda = 13000;
  facts.gpus.libraries = {{"NVML", "libnvidia-ml.so.1", ""}, {"cuBLASLt", "libcublasLt.so.13", ""}};
  SurveyedGpu gpu;
  gpu.name = "NVIDIA H200";
  gpu.pci_bus_id = "0000:1b:00.0";
  gpu.compute_capability = 90;
  gpu.memory_bytes = 140 * kGiB;
  gpu.nvlinks = 18;
  facts.gpus.gpus = {gpu};
}

// The finding about `topic`; the last of several.
Finding about(const MachineFacts& facts, std::string_view topic) {
  Finding found;
  found.topic = "none";
  for (const Finding& finding : judge(facts))
    if (finding.topic == topic) found = finding;
  return found;
}

Verdict worst(const MachineFacts& facts) {
  Verdict verdict = Verdict::kOk;
  for (const Finding& finding : judge(facts)) verdict = std::max(verdict, finding.verdict);
  return verdict;
}

TEST(Doctor, GoodMachinesHaveNothing) {
  MachineFacts facts = good_machine();
  EXPECT_EQ(worst(facts), Verdict::kOk) << findings_text(judge(facts));
  add_h200(facts);
  EXPECT_EQ(worst(facts), Verdict::kOk) << findings_text(judge(facts));
  for (const Finding& finding : judge(facts)) {
    EXPECT_FALSE(finding.found.empty()) << finding.topic;
    EXPECT_FALSE(finding.meaning.empty()) << finding.topic;
  }
}

TEST(Doctor, EachFaultIsFoundWithItsRemedy) {
  struct Case {
    const char* topic;
    Verdict verdict;
    const char* word;  // in meaning, remedy or found
    std::function<void(MachineFacts&)> break_it;
  };
  const std::vector<Case> cases = {
      {"processor", Verdict::kProblem, "AVX2", [](MachineFacts& f) { f.cpu.features = {}; }},
      {"processor", Verdict::kNote, "AMX", [](MachineFacts& f) { f.cpu.vendor = "GenuineIntel"; }},
      {"cores", Verdict::kNote, "quota", [](MachineFacts& f) { f.cpu.quota_cpus = 2.5; }},
      {"cores", Verdict::kProblem, "at least 1", [](MachineFacts& f) { f.cpu.quota_cpus = 0.5; }},
      {"load", Verdict::kNote, "quiet", [](MachineFacts& f) { f.load = 14; }},
      {"clock", Verdict::kNote, "performance", [](MachineFacts& f) { f.governor = "powersave"; }},
      {"memory", Verdict::kProblem, "hardly", [](MachineFacts& f) { f.memory_available_bytes = kGiB / 4; }},
      {"huge pages", Verdict::kNote, "madvise", [](MachineFacts& f) { f.huge_pages = "never"; }},
      {"NUMA", Verdict::kNote, "numactl", [](MachineFacts& f) { f.nodes.push_back({1, 16, 64 * kGiB}); }},
      {"open files", Verdict::kNote, "960", [](MachineFacts& f) { f.open_files_max = 1024; }},
      {"open files", Verdict::kProblem, "ulimit -n", [](MachineFacts& f) { f.open_files = f.open_files_max = 64; }},
      {"address space", Verdict::kProblem, "ulimit -v", [](MachineFacts& f) { f.address_space_bytes = 1 << 30; }},
      {"port", Verdict::kProblem, "ss -ltnp", [](MachineFacts& f) { f.ports[0].said = "Address already in use"; }},
      {"port", Verdict::kProblem, "CAP_NET_BIND", [](MachineFacts& f) { f.ports[0] = {80, "Permission denied"}; }},
      {"GPU", Verdict::kProblem, "without CUDA", [](MachineFacts& f) { f.nvidia_devices = 2; }},
      {"driver", Verdict::kProblem, "--gpus all",
       [](MachineFacts& f) {
         f.nvidia_devices = 1;
         f.gpus.built = true;
         f.gpus.said = "no NVML";
       }},
      {"driver", Verdict::kProblem, "580",
       [](MachineFacts& f) {
         add_h200(f);
         f.gpus.driver_cuda = 12040;
       }},
      {"library", Verdict::kProblem, "--cuda-libs",
       [](MachineFacts& f) {
         add_h200(f);
         f.gpus.libraries[1] = {"cuBLASLt", "", "not found"};
       }},
      {"GPU", Verdict::kProblem, "8.0",
       [](MachineFacts& f) {
         add_h200(f);
         f.gpus.gpus[0].compute_capability = 75;
       }},
      {"GPU", Verdict::kNote, "heat",
       [](MachineFacts& f) {
         add_h200(f);
         f.gpus.gpus[0].throttle_reasons = 0x40;
       }},
      {"GPU", Verdict::kNote, "nvidia-smi",
       [](MachineFacts& f) {
         add_h200(f);
         f.gpus.gpus[0].memory_used_bytes = 90 * kGiB;
       }},
      {"GPU", Verdict::kNote, "MIG",
       [](MachineFacts& f) {
         add_h200(f);
         f.gpus.gpus[0].mig = true;
       }},
      {"GPU", Verdict::kProblem, "lost",
       [](MachineFacts& f) {
         add_h200(f);
         f.gpu_problem = "the GPU is lost";
       }},
      {"model", Verdict::kProblem, "larger", [](MachineFacts& f) { f.models[0].bytes = 70 * kGiB; }},
      {"model", Verdict::kNote, "context", [](MachineFacts& f) { f.models[0].bytes = 55 * kGiB; }},
      {"model", Verdict::kNote, "local disk", [](MachineFacts& f) { f.models[0].on_network = true; }},
      {"model", Verdict::kProblem, "download it again",
       [](MachineFacts& f) {
         f.models[0].problem = "m.gguf: tensor x lies past the end of the file; download it again";
       }},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(std::string(each.topic) + ", " + each.word);
    MachineFacts facts = good_machine();
    each.break_it(facts);
    const Finding finding = about(facts, each.topic);
    EXPECT_EQ(finding.verdict, each.verdict);
    const std::string text = finding.found + "|" + finding.meaning + "|" + finding.remedy;
    EXPECT_NE(text.find(each.word), std::string::npos) << text;
    EXPECT_EQ(worst(facts), each.verdict) << findings_text(judge(facts));  // and nothing else
  }
}

TEST(Doctor, TextAndJsonSayTheSame) {
  MachineFacts facts = good_machine();
  facts.models[0].problem = "bad\x1b[2Jname \xff";
  facts.huge_pages = "never";
  const std::vector<Finding> findings = judge(facts);
  const std::string text = findings_text(findings);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(text.find("1 problem, 1 note\n"), std::string::npos) << text;
  const auto json = nlohmann::json::parse(findings_json(findings), nullptr, false);
  ASSERT_TRUE(json.is_object());
  EXPECT_EQ(json["problems"], 1);
  EXPECT_EQ(json["findings"].size(), findings.size());
  EXPECT_EQ(json["findings"][0]["verdict"], "ok");
}

TEST(Doctor, ThisMachineCanBeLookedAt) {
  LookOptions options;
  options.ports = {8000};
  options.models = {"no such file"};
  const MachineFacts facts = look_at_machine(options);
  EXPECT_GT(facts.memory_bytes, 0);
  EXPECT_GE(facts.machine_cpus, facts.cpu.logical_cpus);
  EXPECT_NE(facts.models[0].problem.find("no such file"), std::string::npos);
  EXPECT_EQ(about(facts, "model").verdict, Verdict::kProblem);
}

}  // namespace
}  // namespace bolide::cli
