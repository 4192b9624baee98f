// SmallThinker (PowerInfer 2025, arXiv:2507.20984): a mixture of experts in every layer, whose
// router sees the stream before attention, so that experts can be read meanwhile:
//
//   chosen = router(x)
//   x += attention(rms_norm(x))
//   x += the sum of the chosen experts(rms_norm(x)), which have ReGLU
//
// In the models with a window all but the first of four layers have it, and only these rotate.
#include "core/model/families.h"
#include "core/model/transformer.h"

namespace sluice::model {

std::unique_ptr<Decoder> make_smallthinker(const Keys& keys, WeightLayout& layout) {
  Transformer model(keys, layout);
  model.rotate(RopePairing::neox);
  model.feed_forwards.activation = Activation::reglu;
  model.feed_forwards.routes_kept = true;
  // Both are a part of the architecture: of what files say, only that there is a window counts.
  keys.leave_aside("attention.sliding_window_pattern");
  if (keys.whole_or("attention.sliding_window", 0, context_max) != 0) {
    model.window = 4096;
    for (std::size_t i = 0; i < model.slides.size(); ++i) model.slides[i] = i % 4 != 0;
    model.only_windows_rotate = true;
  }
  return model.make();
}

}  // namespace sluice::model
