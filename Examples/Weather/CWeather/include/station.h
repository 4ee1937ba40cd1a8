// SPDX-License-Identifier: Apache-2.0
// A weather station in C, whose reports are the structures that protoc-c generates from Protos/examples/weather.proto.
#ifndef STATION_H
#define STATION_H

#include "weather.pb-c.h"

#include <stddef.h>

// Calls `use` with the report of a measurement, which is valid until `use` returns.
void station_measure(const char *name, unsigned hour, void (*use)(const Weather__Report *report, void *context), void *context);

// Writes a line about a report to `line`, which has room for `length` bytes, a NUL included.
void station_describe(const Weather__Report *report, char *line, size_t length);

#endif
