// SPDX-License-Identifier: Apache-2.0
#include <protobuf-c/protobuf-c.h>
