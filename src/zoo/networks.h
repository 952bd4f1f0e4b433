// The architectures, each built by a function; `name` picks among those of one family.
#pragma once

#include "zoo/zoo.h"

namespace bolide {

ZooModel build_resnet(std::string_view name, const ZooOptions& options);
ZooModel build_mobilenet(std::string_view name, const ZooOptions& options);
ZooModel build_yolo(std::string_view name, const ZooOptions& options);
ZooModel build_bert(std::string_view name, const ZooOptions& options);
ZooModel build_vit(std::string_view name, const ZooOptions& options);
ZooModel build_whisper(std::string_view name, const ZooOptions& options);

}  // namespace bolide
