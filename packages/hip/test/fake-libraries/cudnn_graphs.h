// The stand-in's operation graphs, of one convolution each. A descriptor takes the attributes of its kind only, with their
// type and count, and only until it is finalized; finalizing checks them; what a descriptor refers to must outlive it.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace {

struct Value {
  int type = 0;
  int64_t count = 0;
  std::string bytes;
};
struct Descriptor {
  int kind = 0;
  bool finalized = false;
  std::map<int, Value> values;
  // Of what the library fills in: an engine configuration and its engine, or a knob.
  const struct Engine* engine = nullptr;
  Descriptor* graph = nullptr;
  int knob = 0;
};
std::set<Descriptor*> gDescriptors;

Descriptor* known(void* desc) {
  auto* d = static_cast<Descriptor*>(desc);
  return gDescriptors.count(d) ? d : nullptr;
}

struct Engine {
  int64_t index;
  std::vector<int> notes;
  int64_t workspace;
  bool plans;
};
// By expected time. 16 is as good as 15, so that the order counts.
const std::vector<Engine> kRanked = {{10, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, 0, true},
                                     {11, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}, 0, true},
                                     {12, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, int64_t(3) << 30, true},
                                     {13, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, 0, false},
                                     {14, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}, 0, true},
                                     {15, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, 1000, true},
                                     {16, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, 0, true}};
const std::vector<Engine> kFallback = {{1, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, 0, true}, {28, {}, 4608, true}};

struct Rule {
  int kind, name, type;
  int64_t count;  // 0: any number
};
constexpr int kForward = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
constexpr int kBackward = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
const Rule kRules[] = {
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
    {kForward, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
    {kBackward, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_TYPE_FLOAT, 1},
    {kBackward, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_FLOAT, 1},
    {kBackward, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
    {kBackward, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
    {kBackward, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
    {kBackward, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 0},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 0},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1},
};

size_t bytesOfType(int type) {
  return type == CUDNN_TYPE_HANDLE || type == CUDNN_TYPE_VOID_PTR || type == CUDNN_TYPE_BACKEND_DESCRIPTOR || type == CUDNN_TYPE_INT64 ? 8 : 4;
}

template <class T>
T read(const Descriptor& d, int name, size_t index = 0) {
  T value;
  std::memcpy(&value, d.values.at(name).bytes.data() + index * sizeof value, sizeof value);
  return value;
}
// What an attribute refers to, if it is there still, finalized and of that kind.
Descriptor* referred(const Descriptor& d, int name, int kind) {
  Descriptor* other = known(read<void*>(d, name));
  return other && other->finalized && other->kind == kind ? other : nullptr;
}

struct Operation {
  bool backward = false;
  Tensor x, w, y;  // of the forward form
  int64_t ids[3] = {};
  int64_t alignment[3] = {};
  Convolution convolution = {};
};

bool tensorOf(const Descriptor* d, Tensor* out, int64_t* id, int64_t* alignment) {
  if (!d) return false;
  out->type = read<int>(*d, CUDNN_ATTR_TENSOR_DATA_TYPE);
  // Packed in one of the two orders; where both fit, either gives the same places.
  const auto packed = [&](std::initializer_list<int> innermostFirst) {
    int64_t step = 1;
    for (int i : innermostFirst) {
      const int64_t size = read<int64_t>(*d, CUDNN_ATTR_TENSOR_DIMENSIONS, size_t(i));
      if (size < 1 || read<int64_t>(*d, CUDNN_ATTR_TENSOR_STRIDES, size_t(i)) != step) return false;
      out->dims[i] = int(size);
      step *= size;
    }
    return true;
  };
  out->channelsLast = !packed({3, 2, 1, 0});
  if (out->channelsLast && !packed({1, 3, 2, 0})) return false;
  *id = read<int64_t>(*d, CUDNN_ATTR_TENSOR_UNIQUE_ID);
  *alignment = read<int64_t>(*d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  return known(out->type) && *alignment >= 1;
}

bool operationOf(const Descriptor* d, Operation* op) {
  if (!d || (d->kind != kForward && d->kind != kBackward)) return false;
  op->backward = d->kind == kBackward;
  // The attributes of the two kinds follow each other in the same order: alpha, beta, convolution, w, x or dx, y or dy.
  const int first = op->backward ? CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA : CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA;
  const Descriptor* c = referred(*d, first + 2, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  if (!c || read<float>(*d, first) != 1 || read<float>(*d, first + 1) != 0) return false;
  for (int i = 0; i < 3; i++) {
    Tensor* const tensors[] = {&op->w, &op->x, &op->y};
    if (!tensorOf(referred(*d, first + 3 + i, CUDNN_BACKEND_TENSOR_DESCRIPTOR), tensors[i], &op->ids[i], &op->alignment[i])) return false;
  }
  for (size_t i = 0; i < 2; i++) {
    op->convolution.pad[i] = int(read<int64_t>(*c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i));
    if (op->convolution.pad[i] != read<int64_t>(*c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, i)) return false;
    op->convolution.stride[i] = int(read<int64_t>(*c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, i));
    op->convolution.dilation[i] = int(read<int64_t>(*c, CUDNN_ATTR_CONVOLUTION_DILATIONS, i));
  }
  return matches(op->x, op->w, op->convolution, op->y);
}

bool graphOf(const Descriptor* d, Operation* op) {
  if (!d || !read<void*>(*d, CUDNN_ATTR_OPERATIONGRAPH_HANDLE)) return false;
  Descriptor* operation = known(read<void*>(*d, CUDNN_ATTR_OPERATIONGRAPH_OPS));
  return operation && operation->finalized && operationOf(operation, op);
}

bool valid(const Descriptor& d) {
  Operation op;
  switch (d.kind) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: {
      Tensor tensor;
      return tensorOf(&d, &tensor, &op.ids[0], &op.alignment[0]);
    }
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
      return read<int>(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE) == CUDNN_DATA_FLOAT && read<int64_t>(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) == 2 &&
             read<int>(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CROSS_CORRELATION;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: return graphOf(&d, &op);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: {
      const int asked = read<int>(d, CUDNN_ATTR_ENGINEHEUR_MODE);
      return (asked == CUDNN_HEUR_MODE_A || asked == CUDNN_HEUR_MODE_FALLBACK) &&
             referred(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    }
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: {
      const Descriptor* config = referred(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
      return config && config->engine->plans && !mode("noplan") && !mode("none");
    }
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      return d.values.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).count == d.values.at(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).count;
    default: return d.kind == kForward || d.kind == kBackward ? operationOf(&d, &op) : false;
  }
}

const std::vector<Engine>& enginesOf(const Descriptor& heuristics) {
  return read<int>(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_A ? kRanked : kFallback;
}

template <class T>
int give(const std::vector<T>& from, int64_t requested, int64_t* count, void* values) {
  *count = int64_t(from.size());
  for (int64_t i = 0; values && i < std::min(requested, *count); i++) static_cast<T*>(values)[i] = from[size_t(i)];
  return CUDNN_STATUS_SUCCESS;
}

// Fills descriptors that the caller made for it.
template <class F>
int fill(int kind, int64_t available, int64_t requested, int64_t* count, void* values, F each) {
  *count = std::min(available, requested);
  for (int64_t i = 0; i < *count; i++) {
    Descriptor* target = known(static_cast<void**>(values)[i]);
    if (!target || target->kind != kind || target->finalized) return CUDNN_STATUS_BAD_PARAM;
    target->finalized = true;
    each(target, i);
  }
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t kind, cudnnBackendDescriptor_t* desc) {
  auto* made = new Descriptor;
  made->kind = kind;
  gDescriptors.insert(made);
  return gLive++, *desc = made, CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t desc) {
  if (!gDescriptors.erase(static_cast<Descriptor*>(desc))) return CUDNN_STATUS_BAD_PARAM;
  return gLive--, delete static_cast<Descriptor*>(desc), CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t desc, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                       int64_t count, const void* values) {
  Descriptor* d = known(desc);
  if (!d || d->finalized || !values || count < 1) return CUDNN_STATUS_BAD_PARAM;
  for (const Rule& rule : kRules) {
    if (rule.kind != d->kind || rule.name != name) continue;
    if (rule.type != type || (rule.count && rule.count != count)) return CUDNN_STATUS_BAD_PARAM;
    d->values[name] = Value{type, count, std::string(static_cast<const char*>(values), size_t(count) * bytesOfType(type))};
    return CUDNN_STATUS_SUCCESS;
  }
  return CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t desc) {
  Descriptor* d = known(desc);
  if (!d || d->finalized) return CUDNN_STATUS_BAD_PARAM;
  for (const Rule& rule : kRules) {
    if (rule.kind == d->kind && !d->values.count(rule.name)) return CUDNN_STATUS_BAD_PARAM;
  }
  d->finalized = valid(*d);
  return d->finalized ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t desc, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                       int64_t requested, int64_t* count, void* values) {
  Descriptor* d = known(desc);
  if (!d || !d->finalized) return CUDNN_STATUS_BAD_PARAM;
  const bool descriptors = type == CUDNN_TYPE_BACKEND_DESCRIPTOR;
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && descriptors && d->kind == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {
    const std::vector<Engine>& engines = enginesOf(*d);
    const int64_t available = int64_t(engines.size());
    // Like the real one, it announces more than it has.
    if (requested == 0) return *count = available + 2, CUDNN_STATUS_SUCCESS;
    return fill(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, available, requested, count, values, [&](Descriptor* config, int64_t i) {
      config->engine = &engines[size_t(i)];
      config->graph = referred(*d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    });
  }
  if (name == CUDNN_ATTR_ENGINECFG_ENGINE && descriptors && d->kind == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) {
    return fill(CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1, requested, count, values, [&](Descriptor* engine, int64_t) { engine->engine = d->engine; });
  }
  if (name == CUDNN_ATTR_ENGINECFG_KNOB_CHOICES && descriptors && d->kind == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) {
    return fill(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, 2, requested, count, values, [](Descriptor* knob, int64_t i) { knob->knob = int(2 + i); });
  }
  if (name == CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE && type == CUDNN_TYPE_KNOB_TYPE) return give<int>({d->knob}, requested, count, values);
  if (name == CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE && type == CUDNN_TYPE_INT64) return give<int64_t>({d->knob * 10}, requested, count, values);
  if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX && type == CUDNN_TYPE_INT64) return give<int64_t>({d->engine->index}, requested, count, values);
  if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && type == CUDNN_TYPE_NUMERICAL_NOTE) return give(d->engine->notes, requested, count, values);
  if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && type == CUDNN_TYPE_INT64 && d->kind == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    const Descriptor* config = referred(*d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    return config ? give<int64_t>({config->engine->workspace}, requested, count, values) : CUDNN_STATUS_BAD_PARAM;
  }
  return CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t planDesc, cudnnBackendDescriptor_t packDesc) {
  const Descriptor* plan = known(planDesc);
  const Descriptor* pack = known(packDesc);
  if (!plan || !pack || !plan->finalized || !pack->finalized || !static_cast<Handle*>(handle)->stream) return CUDNN_STATUS_BAD_PARAM;
  if (handle != read<void*>(*plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE)) return CUDNN_STATUS_BAD_PARAM;
  const Descriptor* config = referred(*plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  Operation op;
  if (!config || !graphOf(known(config->graph), &op) || pack->values.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).count != 3) return CUDNN_STATUS_BAD_PARAM;
  void* data[3] = {};  // w, x, y of the forward form
  for (size_t i = 0; i < 3; i++) {
    for (size_t j = 0; j < 3; j++) {
      if (read<int64_t>(*pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, j) == op.ids[i]) data[i] = read<void*>(*pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, j);
    }
    if (!data[i] || reinterpret_cast<uint64_t>(data[i]) % uint64_t(op.alignment[i]) != 0) return CUDNN_STATUS_BAD_PARAM;
  }
  if (config->engine->workspace > 0) {
    void* workspace = read<void*>(*pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    if (!workspace) return CUDNN_STATUS_BAD_PARAM;
    std::memset(workspace, 0x7f, size_t(config->engine->workspace));
  }
  const Format f = formatOf(op.x.type);
  if (op.backward) {
    convolveBackward(f, op.y, data[2], op.w, data[0], op.convolution, op.x, data[1]);
  } else {
    convolveForward(f, op.x, data[1], op.w, data[0], op.convolution, op.y, data[2]);
  }
  note(std::string(op.backward ? "backward" : "forward") + ", engine " + std::to_string(config->engine->index));
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
