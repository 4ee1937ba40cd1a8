#if os(Linux)
import Foundation

/// The memory this process has in use, in bytes.
package func residentBytes() -> Int {
    // Pages: total, resident, …
    let fields = (try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8))?.split(separator: " ") ?? []
    return fields.count > 1 ? (Int(fields[1]) ?? 0) * 4_096 : 0
}
#endif
