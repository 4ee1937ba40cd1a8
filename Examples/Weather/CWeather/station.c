// SPDX-License-Identifier: Apache-2.0
#include "station.h"

#include <stdio.h>

void station_measure(const char *name, unsigned hour, void (*use)(const Weather__Report *report, void *context), void *context) {
    Weather__Station station = WEATHER__STATION__INIT;
    station.name = (char *)name;
    station.latitude = 47.42;
    station.longitude = 10.98;

    float gusts[] = {3.5f, 4.25f, 2.0f};
    Weather__Report report = WEATHER__REPORT__INIT;
    report.station = &station;
    report.temperature = 4.5 + (double)(hour % 24) / 2;
    report.gusts = gusts;
    report.n_gusts = sizeof gusts / sizeof *gusts;
    report.precipitation_case = WEATHER__REPORT__PRECIPITATION_RAIN;
    report.rain = hour % 3;
    use(&report, context);
}

void station_describe(const Weather__Report *report, char *line, size_t length) {
    float strongest = 0;
    for (size_t index = 0; index < report->n_gusts; index++) {
        if (report->gusts[index] > strongest) strongest = report->gusts[index];
    }
    snprintf(
        line, length, "%s: %.1f degrees, gusts of %.1f m/s", report->station ? report->station->name : "somewhere",
        report->temperature, (double)strongest
    );
}
