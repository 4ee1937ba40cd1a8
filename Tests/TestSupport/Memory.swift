// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import Foundation

#if canImport(Glibc)
/// `malloc_trim` of glibc, whose header the module Glibc omits.
@_silgen_name("malloc_trim") private func trim(_ kept: Int) -> CInt
#endif

/// The memory that this process uses, in bytes.
package func residentBytes() -> Int {
    // Pages: total, resident, …
    let fields = (try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8))?.split(separator: " ") ?? []
    return fields.count > 1 ? (Int(fields[1]) ?? 0) * 4_096 : 0
}

/// Returns free memory of the allocator to the system, as far as possible.
package func returnFreeMemory() {
    #if canImport(Glibc)
    _ = trim(0)
    #endif
}
#endif
