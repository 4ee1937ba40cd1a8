// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import Foundation

#if canImport(Glibc)
/// `malloc_trim` of glibc, whose header its module leaves out.
@_silgen_name("malloc_trim") private func trim(_ kept: Int) -> CInt
#endif

/// The memory this process has in use, in bytes.
package func residentBytes() -> Int {
    // Pages: total, resident, …
    let fields = (try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8))?.split(separator: " ") ?? []
    return fields.count > 1 ? (Int(fields[1]) ?? 0) * 4_096 : 0
}

/// Gives the system back what the allocator keeps for later, as far as the allocator can.
package func returnFreeMemory() {
    #if canImport(Glibc)
    _ = trim(0)
    #endif
}
#endif
