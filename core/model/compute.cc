#include "core/model/compute.h"

#include <algorithm>
#include <system_error>

#include "base/check.h"
#include "kernels/dequantise.h"
#include "kernels/panel_packing.h"

namespace sluice::model {

namespace {

// The fewest rows that a thread takes: four panels, the group that kernels work on together. Fewer
// where that would leave threads without work.
std::size_t group_rows(std::size_t rows, std::size_t threads) {
  constexpr std::size_t four_panels = 4 * kernels::panel_rows;
  return rows >= threads * four_panels ? four_panels : kernels::panel_rows;
}

}  // namespace

Compute::Compute(const kernels::KernelTable& kernels, topology::ThreadTeam& team,
                 streaming::Tape& tape, std::size_t size_max, std::size_t columns_max,
                 std::size_t rotated_max, std::size_t ring_held_max)
    : kernels_(kernels),
      team_(team),
      tape_(tape),
      ring_held_max_(ring_held_max),
      quantised_(kernels::Activations::buffer_bytes(size_max, columns_max)),
      rotated_(rotated_max * columns_max * sizeof(float)),
      scratch_(kernels::MatmulScratch::bytes * team.size()) {
  held_.reserve(64);
}

std::size_t Compute::bytes(std::size_t size_max, std::size_t columns_max, std::size_t rotated_max,
                           std::size_t threads) {
  return kernels::Activations::buffer_bytes(size_max, columns_max) +
         rotated_max * columns_max * sizeof(float) + kernels::MatmulScratch::bytes * threads;
}

void Compute::multiply(const float* x, std::size_t x_stride, std::size_t size, std::size_t columns,
                       std::span<const Product> products) {
  // Neighbours with the same rotation are multiplied together.
  while (!products.empty()) {
    const Rotation* const rotation = products.front().w->rotation;
    const auto other = std::ranges::find_if(
        products, [&](const Product& product) { return product.w->rotation != rotation; });
    const auto alike = products.first(static_cast<std::size_t>(other - products.begin()));
    products = products.subspan(alike.size());
    if (rotation == nullptr) {
      multiply_alike(x, x_stride, size, columns, alike);
      continue;
    }
    base::check(size * columns * sizeof(float) <= rotated_.size(),
                "a product takes more rotated columns than there is memory for");
    auto* const rotated = reinterpret_cast<float*>(rotated_.data());
    for_each(columns, [&](std::size_t, std::size_t begin, std::size_t end) {
      for (std::size_t c = begin; c < end; ++c) {
        rotation->turn(x + c * x_stride, rotated + c * size);
      }
    });
    multiply_alike(rotated, size, size, columns, alike);
  }
}

// Multiplies x as it is.
void Compute::multiply_alike(const float* x, std::size_t x_stride, std::size_t size,
                             std::size_t columns, std::span<const Product> products) {
  for (const Product& product : products) show(product, x, x_stride, size, columns);
  base::check(kernels::Activations::buffer_bytes(size, columns) <= quantised_.size(),
              "a product takes more columns than there is memory for");
  const kernels::Activations activations(x, x_stride, size, columns, quantised_.data());
  quantise(activations, products);
  const Release on_exit{*this};
  for (const Product& product : products) hold_and_multiply(product, activations);
  if (!held_.empty()) multiply_held();
}

void Compute::multiply_each(const float* x, std::size_t apart, std::size_t x_stride,
                            std::size_t size, std::size_t columns,
                            std::span<const Product> products) {
  const std::size_t bytes_each = kernels::Activations::buffer_bytes(size, columns);
  std::size_t most = std::min(quantised_.size() / bytes_each, products.size());
  const bool rotates = std::ranges::any_of(
      products, [](const Product& product) { return product.w->rotation != nullptr; });
  if (rotates) most = std::min(most, rotated_.size() / (size * columns * sizeof(float)));
  base::check(most != 0 || products.empty(), "there is no memory for the columns of a product");
  if (most < products.size()) {  // there is room for the columns of some
    multiply_each(x, apart, x_stride, size, columns, products.first(most));
    return multiply_each(x + most * apart, apart, x_stride, size, columns, products.subspan(most));
  }
  inputs_.clear();
  auto* const rotated = reinterpret_cast<float*>(rotated_.data());
  struct Input {
    const float* x;
    std::size_t x_stride;
  };
  const auto input = [&](std::size_t i) {
    return products[i].w->rotation == nullptr ? Input{x + i * apart, x_stride}
                                              : Input{rotated + i * columns * size, size};
  };
  for (std::size_t i = 0; i < products.size(); ++i) {
    inputs_.emplace_back(input(i).x, input(i).x_stride, size, columns,
                         quantised_.data() + i * bytes_each);
  }
  for_each(products.size() * columns, [&](std::size_t, std::size_t begin, std::size_t end) {
    for (std::size_t at = begin; at < end; ++at) {
      const std::size_t i = at / columns, c = at % columns;
      const Rotation* const rotation = products[i].w->rotation;
      if (rotation != nullptr) rotation->turn(x + i * apart + c * x_stride, rotated + at * size);
      inputs_[i].quantise(kernels_.quantise, kernels::traits(products[i].w->type).activation_form,
                          c);
    }
  });
  for (std::size_t i = 0; i < products.size(); ++i) {
    show(products[i], input(i).x, input(i).x_stride, size, columns);
  }
  const Release on_exit{*this};
  for (std::size_t i = 0; i < products.size(); ++i) hold_and_multiply(products[i], inputs_[i]);
  if (!held_.empty()) multiply_held();
}

void Compute::show(const Product& product, const float* x, std::size_t x_stride, std::size_t size,
                   std::size_t columns) const {
  const Matrix& w = *product.w;
  if (watch_ && w.is_first_part) watch_({w.tensor, w.place, w.places, x, x_stride, size, columns});
}

void Compute::multiply_transposed(const float* x, std::size_t x_stride, std::size_t columns,
                                  const Matrix& w, float* y, std::size_t y_stride) {
  for (std::size_t c = 0; c < columns; ++c) std::fill_n(y + c * y_stride, w.columns, 0.0f);
  const Release on_exit{*this};
  const Product product{&w, y, y_stride};
  const Transposed transposed{x, x_stride, columns, w, y, y_stride};
  for (const Slice& slice : w.slices) {
    if (stop_check_) stop_check_();
    hold(product, nullptr, slice);
    add_held_rows(transposed);
    release_held(false);
  }
}

// Threads share the elements of the rows, so that each sum has one order.
void Compute::add_held_rows(const Transposed& product) {
  constexpr std::size_t piece = 256;  // whole blocks of every format
  const Matrix& w = product.w;
  const kernels::BlockTraits& block = kernels::traits(w.type);
  const HeldSlice& held = held_.front();
  const float scale = w.scale.empty() ? 1 : w.scale.front();
  for_each((w.columns + piece - 1) / piece, [&](std::size_t, std::size_t begin, std::size_t end) {
    float weights[piece];
    for (std::size_t at = begin * piece; at < std::min(end * piece, w.columns); at += piece) {
      const std::size_t size = std::min(piece, w.columns - at);
      const std::byte* blocks = held.data + at / block.elements_per_block * block.bytes_per_block;
      for (std::size_t r = 0; r < held.slice->rows; ++r) {
        kernels::dequantise(w.type, blocks + r * w.row_bytes, size, weights);
        const float* x = product.x + held.slice->first_row + r;
        for (std::size_t c = 0; c < product.columns; ++c) {
          ops().add_scaled(weights, scale * x[c * product.x_stride], size,
                           product.y + c * product.y_stride + at);
        }
      }
    }
  });
}

void Compute::hold_and_multiply(const Product& product, const kernels::Activations& x) {
  for (const Slice& slice : product.w->slices) {
    if (held_.empty() && stop_check_) stop_check_();
    hold(product, &x, slice);
    if (ring_held_ == ring_held_max_) multiply_held();
  }
}

void Compute::hold(const Product& product, const kernels::Activations* x, const Slice& slice) {
  base::check(ring_held_ < ring_held_max_, "a wave holds more of the ring than it may");
  const streaming::HeldSegment segment = tape_.acquire(slice.turn);
  const bool may_be_packed = kernels_.matmul.reads_packed && kernels::can_pack(slice.rows);
  // A segment in memory of its own is as WeightLayout::pack made it.
  const bool is_packed = may_be_packed && segment.storage == streaming::Storage::copied;
  const bool packs = may_be_packed && x != nullptr;
  held_.push_back(
      {&product, x, &slice, segment.bytes.data(), packs ? segment.place : nullptr, is_packed, {}});
  ring_held_ += segment.storage == streaming::Storage::ring ? 1 : 0;
  base::check(slice.rows * product.w->row_bytes <= segment.bytes.size(),
              "a slice of a matrix is longer than its segment");
}

// If the reader has failed for good, the error appears here, as the ring reads ahead, and again at
// the next acquire; so it can be ignored here.
void Compute::release_held(bool are_packed) noexcept {
  for (const HeldSlice& held : held_) {
    try {
      if (are_packed && held.place != nullptr) {
        tape_.keep(held.slice->turn);
      } else {
        tape_.release(held.slice->turn);
      }
    } catch (const std::system_error&) {
    }
  }
  held_.clear();
  ring_held_ = 0;
}

void Compute::quantise(const kernels::Activations& x, std::span<const Product> products) {
  for (const kernels::ActivationForm form :
       {kernels::ActivationForm::a256, kernels::ActivationForm::a32}) {
    const bool wanted = std::any_of(products.begin(), products.end(), [form](const Product& p) {
      return kernels::traits(p.w->type).activation_form == form;
    });
    if (!wanted) continue;
    for_each(x.columns(), [&](std::size_t, std::size_t begin, std::size_t end) {
      for (std::size_t c = begin; c < end; ++c) x.quantise(kernels_.quantise, form, c);
    });
  }
}

void Compute::multiply_held() {
  std::size_t groups = 0;
  for (HeldSlice& held : held_) {
    const std::size_t rows = held.slice->rows, unit = group_rows(rows, team_.size());
    held.groups = {groups, groups + (rows + unit - 1) / unit};
    groups = held.groups.end;
  }
  for_each(groups, [&](std::size_t member, std::size_t first, std::size_t last) {
    const kernels::MatmulScratch scratch{scratch_.data() + member * kernels::MatmulScratch::bytes};
    for (const HeldSlice& held : held_) {
      const std::size_t unit = group_rows(held.slice->rows, team_.size());
      const std::size_t begin = std::max(first, held.groups.begin);
      const std::size_t end = std::min(last, held.groups.end);
      if (begin >= end) continue;
      const topology::WorkRange rows{(begin - held.groups.begin) * unit,
                                     std::min((end - held.groups.begin) * unit, held.slice->rows)};
      multiply_rows(held, rows, scratch);
    }
  });
  release_held(true);
}

// Multiplies the rows `range` of a slice.
void Compute::multiply_rows(const HeldSlice& held, const topology::WorkRange& range,
                            const kernels::MatmulScratch& scratch) {
  const Product& product = *held.product;
  const kernels::Activations& x = *held.x;
  const Matrix& w = *product.w;
  kernels::WeightRows rows{w.type,       held.data + range.begin * w.row_bytes,
                           range.size(), w.columns,
                           w.row_bytes,  held.is_packed};
  if (held.place != nullptr) {
    std::byte* const place = held.place + range.begin * w.row_bytes;
    kernels::pack_panels(w.type, range.size(), w.columns, rows.data, place);
    rows.data = place;
    rows.is_packed = true;
  }
  const std::size_t first = held.slice->first_row + range.begin;
  float* y = product.y + first;
  kernels_.matmul.multiply(rows, x, y, product.y_stride, scratch);
  if (w.scale.empty() && product.bias.empty()) return;
  for (std::size_t c = 0; c < x.columns(); ++c, y += product.y_stride) {
    if (!w.scale.empty()) ops().scale(y, range.size(), w.scale.front());
    if (!product.bias.empty()) ops().add(product.bias.data() + first, range.size(), y);
  }
}

}  // namespace sluice::model
