// The int8 products of every instruction set that the machine has, and AMX with emulated tiles, against plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/igemm_int8/amx_emulation.h"
#include "kernels/igemm_int8/pack.h"
#include "kernels/testing/guarded.h"

namespace bolide {
namespace {

using testing::Guarded;

// What there is on this machine.
std::vector<Int8Engine> engines() {
  std::vector<Int8Engine> found;
  DeviceInfo info;
  info.cpu = detect_cpu();
  for (const Isa isa : {Isa::kAvx2, Isa::kVnni, Isa::kAmx}) {
    info.isa = isa;
    if (best_isa(info.cpu) >= isa) found.push_back(*int8_engine(info));
  }
  if (best_isa(info.cpu) >= Isa::kVnni) {
    info.isa = Isa::kAmx;
    Int8Engine emulated = *int8_engine(info);
    emulated.isa = "amx, emulated", emulated.block = amx_emulated::int8_block;
    emulated.lines = amx_emulated::int8_lines;
    found.push_back(emulated);
  }
  return found;
}

struct Case {
  int64_t rows, taps, bytes, n;  // bytes: of a tap
  bool x_signed, row_terms;
  Int8Finish::Kind kind;
};

uint8_t byte_at(const Guarded& g, int64_t i) { return static_cast<uint8_t>(g.data()[i]); }

void fill(Guarded& g, std::mt19937& random) {
  std::uniform_int_distribution<int> draw(0, 255);
  for (std::byte& b : g.bytes()) b = static_cast<std::byte>(draw(random));
}

void check(const Int8Engine& engine, const Case& c, std::mt19937& random, Workers& workers) {
  std::uniform_real_distribution<float> unit(0, 1);
  const int64_t K = c.taps * c.bytes;
  Guarded pixels(static_cast<size_t>((c.rows + c.taps) * c.bytes));  // row m, tap t: run m + t
  fill(pixels, random);
  std::vector<int8_t> w(static_cast<size_t>(c.n * K));
  std::uniform_int_distribution<int> draw(-128, 127);
  for (int8_t& v : w) v = static_cast<int8_t>(draw(random));
  const auto packed = pack_int8(engine, c.n, K, w.data(), K, 1);
  ASSERT_TRUE(packed);
  const auto N = static_cast<size_t>(padded(c.n, 64));
  std::vector<int32_t> offsets(N), zeros(N), row_sums(static_cast<size_t>(c.rows));
  std::vector<float> scales(N), bias(N);
  for (size_t i = 0; i < N; ++i) {
    offsets[i] = draw(random) * 100, zeros[i] = draw(random);
    scales[i] = 0.02f * unit(random) / std::sqrt(static_cast<float>(K)), bias[i] = unit(random);
  }
  for (int32_t& v : row_sums) v = draw(random);
  const bool wide = c.kind == Int8Finish::kSums || c.kind == Int8Finish::kF32;
  const int64_t stride = c.n + 3;
  Guarded out(static_cast<size_t>(((c.rows - 1) * stride + c.n) * (wide ? 4 : 1)));
  Guarded residual(static_cast<size_t>(c.rows * c.n));
  fill(residual, random);
  Int8Job job{.engine = &engine,
              .weights = &*packed,
              .rows = c.rows,
              .taps = c.taps,
              .quads = c.bytes / 4,
              .flip = c.x_signed,
              .finish = {}};
  Int8Finish& f = job.finish;
  f.kind = c.kind, f.residual_signed = c.x_signed;
  f.offsets = offsets.data(), f.scales = scales.data(), f.bias = bias.data();
  if (c.row_terms) f.row_sums = row_sums.data(), f.column_zeros = zeros.data();
  f.low = c.kind == Int8Finish::kF32 ? -2.f : -100, f.high = c.kind == Int8Finish::kF32 ? 5.f : 90;
  f.zero = c.row_terms ? 7 : 110;  // codes of i8, or of u8
  f.residual = reinterpret_cast<const uint8_t*>(residual.data()), f.residual_stride = c.n;
  f.ratio = 0.3f, f.residual_ratio = 0.7f, f.rest = 1.9f, f.low2 = c.x_signed ? -128 : 3, f.high2 = 110;
  f.is_signed = c.kind == Int8Finish::kAdded ? c.x_signed : c.row_terms;
  if (c.kind == Int8Finish::kCodes && c.bytes % 8 == 0)
    f.low = static_cast<float>(f.is_signed ? -128 : 0) - static_cast<float>(f.zero), f.bounded = false;
  f.out = out.data(), f.out_stride = stride;
  const auto* x = reinterpret_cast<const uint8_t*>(pixels.data());
  const auto scratch = Tensor::make(DType::kU8, {static_cast<int64_t>(job.scratch_bytes(workers.threads()))});
  ASSERT_TRUE(scratch);
  run_int8(
      job,
      [&](int64_t row0, int64_t rows, const uint8_t** to, int64_t apart) {
        for (int64_t t = 0; t < c.taps; ++t)
          for (int64_t i = 0; i < rows; ++i) to[t * apart + i] = x + (row0 + i + t) * c.bytes;
      },
      reinterpret_cast<uint8_t*>(const_cast<std::byte*>(scratch->data())), workers);
  EXPECT_TRUE(out.intact());
  for (int64_t m = 0; m < c.rows; ++m)
    for (int64_t n = 0; n < c.n; ++n) {
      const auto i = static_cast<size_t>(n);
      int64_t sum = 0;
      for (int64_t k = 0; k < K; ++k) {
        const uint8_t v = byte_at(pixels, (m + k / c.bytes) * c.bytes + k % c.bytes);
        sum += (c.x_signed ? static_cast<int8_t>(v) + 128 : v) * int64_t{w[static_cast<size_t>(n * K + k)]};
      }
      sum += offsets[i];
      if (c.row_terms) sum -= int64_t{row_sums[static_cast<size_t>(m)]} * zeros[i];
      const int64_t at = m * stride + n;
      const std::byte* got = out.data() + at * (wide ? 4 : 1);
      const float v = static_cast<float>(sum) * scales[i];
      const std::string where = std::string(engine.isa) + " row " + std::to_string(m) + " column " + std::to_string(n);
      if (c.kind == Int8Finish::kSums) {
        ASSERT_EQ(*reinterpret_cast<const int32_t*>(got), sum) << where;
      } else if (c.kind == Int8Finish::kF32) {
        ASSERT_EQ(*reinterpret_cast<const float*>(got),
                  std::clamp(std::fma(static_cast<float>(sum), scales[i], bias[i]), f.low, f.high))
            << where;
      } else {
        float code = std::clamp(std::nearbyint(v), f.low, f.high);
        if (c.kind == Int8Finish::kAdded) {
          const uint8_t r = byte_at(residual, m * c.n + n);
          const auto other = static_cast<float>(c.x_signed ? static_cast<int8_t>(r) : r);
          code = std::clamp(std::nearbyint(std::fma(code, f.ratio, std::fma(other, f.residual_ratio, f.rest))), f.low2,
                            f.high2);
        } else {
          code += static_cast<float>(f.zero);
        }
        ASSERT_EQ(static_cast<uint8_t>(*got), static_cast<uint8_t>(static_cast<int>(code))) << where;
      }
    }
}

TEST(IgemmInt8, EqualsPlainLoops) {
  std::mt19937 random(std::random_device{}());
  Workers workers(2);
  const auto draw = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(1, most)(random); };
  for (const Int8Engine& engine : engines())
    for (int i = 0; i < 60; ++i) {
      Case c{.rows = draw(150),
             .taps = draw(9),
             .bytes = 4 * draw(40),
             .n = draw(200),
             .x_signed = draw(2) == 1,
             .row_terms = draw(3) == 1,
             .kind = static_cast<Int8Finish::Kind>(draw(4) - 1)};
      if (i % 7 == 0) c.n = 64 * draw(3), c.rows = 6 * draw(20);
      check(engine, c, random, workers);
      if (::testing::Test::HasFatalFailure()) {
        ADD_FAILURE() << engine.isa << ": " << c.rows << " x " << c.taps << " x " << c.bytes << " x " << c.n;
        return;
      }
    }
  EXPECT_EQ(amx_emulated::int8_block_faults(), 0);
}

// Windows over images that lie evenly, read where they are and not beyond: sums against plain loops, what is made of
// them against the same job with pointers to rows.
TEST(IgemmInt8, LinesEqualPlainLoopsAndRows) {
  std::mt19937 random(std::random_device{}());
  Workers workers(2);
  const auto draw = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(1, most)(random); };
  int checked = 0;
  for (const Int8Engine& engine : engines()) {
    if (engine.lines == nullptr) continue;
    for (int i = 0; i < 60; ++i, ++checked) {
      const bool flat = i % 3 != 0, is_signed = draw(3) == 1;
      const int64_t images = draw(2), KH = draw(3), KW = flat ? draw(3) : 1, n = i % 5 == 0 ? 64 * draw(3) : draw(150);
      const int64_t out_w = 3 + draw(40), out_h = (flat && out_w < 16 ? 5 : 0) + draw(9);
      const int64_t tap_bytes = flat ? 64 * draw(2) : 64, row_stride = flat ? tap_bytes : 4 * draw(6);
      const int64_t period = flat ? out_w + KW - 1 : padded(out_w, 16);
      const int64_t line = flat ? period * row_stride : period * row_stride + 4 * draw(9);
      const int64_t image =
          flat ? (out_h + KH - 1) * line : (out_h - 1) * line + (KH - 1) * line + (period - 1) * row_stride + tap_bytes;
      const int64_t taps = KH * KW, K = taps * tap_bytes, rows = out_h * out_w;
      std::vector<int64_t> offsets_of_taps;
      for (int64_t y = 0; y < KH; ++y)
        for (int64_t x = 0; x < KW; ++x) offsets_of_taps.push_back(y * line + x * row_stride);
      Guarded pixels(static_cast<size_t>(images * image));
      fill(pixels, random);
      const auto* const base = reinterpret_cast<const uint8_t*>(pixels.data());
      std::uniform_int_distribution<int> byte(-128, 127);
      std::vector<int8_t> w(static_cast<size_t>(n * K));
      for (int8_t& v : w) v = static_cast<int8_t>(byte(random));
      const auto packed = pack_int8(engine, n, K, w.data(), K, 1);
      ASSERT_TRUE(packed);
      const auto N = static_cast<size_t>(padded(n, 64));
      std::vector<int32_t> offsets(N), lifted(N);
      std::vector<float> scales(N), bias(N, 0.5f);
      for (size_t j = 0; j < N; ++j) {
        offsets[j] = byte(random) * 100, scales[j] = 0.0001f * static_cast<float>(draw(100));
        lifted[j] = offsets[j] - (is_signed ? 128 * packed->sums.as<int32_t>()[j] : 0);
      }
      Guarded residual(static_cast<size_t>(images * rows * n));
      fill(residual, random);
      for (const auto kind : {Int8Finish::kSums, Int8Finish::kF32, Int8Finish::kCodes, Int8Finish::kAdded}) {
        const int64_t size = kind == Int8Finish::kSums || kind == Int8Finish::kF32 ? 4 : 1;
        Guarded out(static_cast<size_t>(images * rows * n * size)), by_rows(out.bytes().size());
        Int8Finish f;
        f.kind = kind, f.offsets = offsets.data(), f.scales = scales.data(), f.bias = bias.data();
        f.low = -100, f.high = i % 2 == 0 ? 145 : 90, f.zero = 110, f.capped = i % 2 != 0;
        f.residual = reinterpret_cast<const uint8_t*>(residual.data()), f.residual_stride = n;
        f.ratio = 0.3f, f.residual_ratio = 0.7f, f.rest = 1.9f, f.low2 = 3;
        f.high2 = f.capped ? 110 : 255;
        f.out = out.data(), f.out_stride = n;
        Int8LinesJob job{.engine = &engine, .weights = &*packed, .image = {}, .finish = f};
        job.images = images, job.image_stride = image, job.results = rows;
        job.image.base = base, job.image.row_stride = row_stride, job.image.line_stride = line;
        job.image.taps = offsets_of_taps.data(), job.image.tap_count = taps, job.image.tap_bytes = tap_bytes;
        job.image.is_signed = is_signed, job.image.period = period, job.image.valid = out_w;
        job.image.positions = flat ? (out_h - 1) * period + out_w : out_h * period;
        run_int8_lines(job, workers);
        EXPECT_TRUE(out.intact());
        Int8Job rows_job{.engine = &engine,
                         .weights = &*packed,
                         .rows = images * rows,
                         .taps = taps,
                         .quads = tap_bytes / 4,
                         .flip = is_signed,
                         .finish = f};
        rows_job.finish.offsets = lifted.data(), rows_job.finish.out = by_rows.data(), rows_job.finish.capped = true;
        const auto pixel = [&](int64_t row, int64_t t) {
          const int64_t x = row % out_w, y = row / out_w % out_h;
          return base + row / rows * image + y * line + x * row_stride + offsets_of_taps[static_cast<size_t>(t)];
        };
        const auto scratch = Tensor::make(DType::kU8, {static_cast<int64_t>(rows_job.scratch_bytes(2))});
        run_int8(
            rows_job,
            [&](int64_t row0, int64_t count, const uint8_t** to, int64_t apart) {
              for (int64_t t = 0; t < taps; ++t)
                for (int64_t r = 0; r < count; ++r) to[t * apart + r] = pixel(row0 + r, t);
            },
            reinterpret_cast<uint8_t*>(const_cast<std::byte*>(scratch->data())), workers);
        ASSERT_TRUE(std::equal(out.bytes().begin(), out.bytes().end(), by_rows.bytes().begin()))
            << engine.isa << " kind " << kind << " flat " << flat << " " << out_h << "x" << out_w << " taps " << taps;
        if (kind != Int8Finish::kSums) continue;
        for (int64_t m = 0; m < images * rows; ++m)
          for (int64_t c = 0; c < n; c += draw(7)) {
            int64_t sum = offsets[static_cast<size_t>(c)];
            for (int64_t k = 0; k < K; ++k) {
              const uint8_t v = pixel(m, k / tap_bytes)[k % tap_bytes];
              sum += (is_signed ? static_cast<int8_t>(v) : v) * int64_t{w[static_cast<size_t>(c * K + k)]};
            }
            ASSERT_EQ(reinterpret_cast<const int32_t*>(out.data())[m * n + c], sum) << "row " << m << " column " << c;
          }
      }
    }
  }
  EXPECT_EQ(amx_emulated::int8_block_faults(), 0);
  if (checked == 0) GTEST_SKIP() << "no instruction set here has lines, and without VNNI they are not emulated";
}

// Products that pass 16 bits in pairs: what vpmaddubsw alone would saturate.
TEST(IgemmInt8, ExtremesDoNotSaturate) {
  Workers workers(1);
  for (const Int8Engine& engine : engines()) {
    constexpr int64_t kK = 64, kN = 17;
    Guarded x(kK * 3);
    for (std::byte& b : x.bytes()) b = std::byte{255};
    for (const int8_t value : {int8_t{-128}, int8_t{127}}) {
      const std::vector<int8_t> w(kN * kK, value);
      const auto packed = pack_int8(engine, kN, kK, w.data(), kK, 1);
      const std::vector<int32_t> zeros(64, 0);
      Guarded out(3 * kN * 4);
      Int8Job job{
          .engine = &engine, .weights = &*packed, .rows = 3, .taps = 1, .quads = kK / 4, .flip = false, .finish = {}};
      job.finish.kind = Int8Finish::kSums, job.finish.offsets = zeros.data();
      job.finish.out = out.data(), job.finish.out_stride = kN;
      const auto scratch = Tensor::make(DType::kU8, {static_cast<int64_t>(job.scratch_bytes(1))});
      run_int8(
          job,
          [&](int64_t row0, int64_t rows, const uint8_t** to, int64_t) {
            for (int64_t i = 0; i < rows; ++i) to[i] = reinterpret_cast<const uint8_t*>(x.data()) + (row0 + i) * kK;
          },
          reinterpret_cast<uint8_t*>(const_cast<std::byte*>(scratch->data())), workers);
      for (int i = 0; i < 3 * kN; ++i)
        ASSERT_EQ(reinterpret_cast<const int32_t*>(out.data())[i], 255 * 64 * value) << engine.isa;
    }
  }
}

TEST(IgemmInt8, DepthwiseEqualsPlainLoops) {
  std::mt19937 random(std::random_device{}());
  Workers workers(2);
  const auto draw = [&](int64_t most) { return std::uniform_int_distribution<int64_t>(1, most)(random); };
  for (const Int8Engine& engine : engines())
    for (int i = 0; i < 40; ++i) {
      const int64_t C = draw(150), taps = draw(26), rows = draw(70);
      const bool x_signed = draw(2) == 1;
      Guarded pixels(static_cast<size_t>((rows + taps) * C));
      fill(pixels, random);
      std::vector<int8_t> w(static_cast<size_t>(C * taps));
      std::uniform_int_distribution<int> value(-128, 127);
      for (int8_t& v : w) v = static_cast<int8_t>(value(random));
      const auto packed = pack_int8_depthwise(C, taps, w.data());
      ASSERT_TRUE(packed);
      const std::vector<int32_t> offsets(static_cast<size_t>(padded(C, 64)), 11);
      Guarded out(static_cast<size_t>(rows * C * 4));
      Int8Job job{.engine = &engine,
                  .weights = &*packed,
                  .rows = rows,
                  .taps = taps,
                  .quads = 0,
                  .flip = x_signed,
                  .finish = {}};
      job.finish.kind = Int8Finish::kSums, job.finish.offsets = offsets.data();
      job.finish.out = out.data(), job.finish.out_stride = C;
      const auto scratch = Tensor::make(DType::kU8, {static_cast<int64_t>(job.scratch_bytes(2))});
      run_int8_depthwise(
          job,
          [&](int64_t row0, int64_t count, const uint8_t** to, int64_t apart) {
            for (int64_t t = 0; t < taps; ++t)
              for (int64_t r = 0; r < count; ++r)
                to[t * apart + r] = reinterpret_cast<const uint8_t*>(pixels.data()) + (row0 + r + t) * C;
          },
          reinterpret_cast<uint8_t*>(const_cast<std::byte*>(scratch->data())), workers);
      EXPECT_TRUE(out.intact());
      for (int64_t m = 0; m < rows; ++m)
        for (int64_t c = 0; c < C; ++c) {
          int64_t sum = 11;
          for (int64_t t = 0; t < taps; ++t) {
            const uint8_t v = byte_at(pixels, (m + t) * C + c);
            sum += (x_signed ? static_cast<int8_t>(v) + 128 : v) * int64_t{w[static_cast<size_t>(c * taps + t)]};
          }
          ASSERT_EQ(reinterpret_cast<const int32_t*>(out.data())[m * C + c], sum) << engine.isa << " channel " << c;
        }
    }
}

TEST(IgemmInt8, RoundsAndAdds) {
  std::mt19937 random(std::random_device{}());
  for (const Int8Engine& engine : engines())
    for (int64_t count = 1; count < 60; ++count) {
      Guarded x(static_cast<size_t>(count) * 4), out(static_cast<size_t>(count)), a(static_cast<size_t>(count)),
          b(static_cast<size_t>(count));
      fill(a, random), fill(b, random);
      auto* const values = reinterpret_cast<float*>(x.data());
      std::uniform_int_distribution<int> draw(-1200, 1200);
      float least = 0, most = 0;
      for (int64_t i = 0; i < count; ++i) {
        values[i] = static_cast<float>(draw(random)) * 0.125f;  // ties, with a scale of 0.25
        least = std::min(least, values[i]), most = std::max(most, values[i]);
      }
      float low = 1, high = -1;
      engine.range(values, count, &low, &high);
      EXPECT_EQ(low, least);
      EXPECT_EQ(high, most);
      auto* const to = reinterpret_cast<uint8_t*>(out.data());
      engine.round({.x = values, .count = count, .scale = 0.25f, .low = -131, .high = 124, .zero = 131, .out = to});
      for (int64_t i = 0; i < count; ++i)
        ASSERT_EQ(to[i], std::clamp(std::nearbyint(values[i] / 0.25f) + 131, 0.f, 255.f)) << engine.isa;
      engine.add({.a = reinterpret_cast<const uint8_t*>(a.data()),
                  .b = reinterpret_cast<const uint8_t*>(b.data()),
                  .a_signed = true,
                  .b_signed = false,
                  .count = count,
                  .ratio_a = 0.4f,
                  .ratio_b = 0.25f,
                  .rest = 3.5f,
                  .low = -128,
                  .high = 120,
                  .out = to});
      for (int64_t i = 0; i < count; ++i) {
        const auto p = static_cast<float>(static_cast<int8_t>(byte_at(a, i))), q = static_cast<float>(byte_at(b, i));
        const float sum = std::fma(p, 0.4f, std::fma(q, 0.25f, 3.5f));
        ASSERT_EQ(static_cast<int8_t>(to[i]), std::clamp(std::nearbyint(sum), -128.f, 120.f)) << engine.isa;
      }
      EXPECT_TRUE(out.intact());
    }
}

}  // namespace
}  // namespace bolide
