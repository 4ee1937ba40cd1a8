// SPDX-License-Identifier: Apache-2.0
import HHSocketServer
import HHSocketSystem

/// The metrics of the process, with the names that Prometheus' client libraries give them. Those that the system does
/// not know are left out.
struct ProcessMetrics: Sendable {
    /// The time at which it was made, in seconds since 1970.
    private let startTime = time(nil)

    /// Appends the lines.
    func write(to text: inout String) {
        func write(_ name: String, kind: PrometheusKind, value: Double?) {
            guard let value else { return }
            text += "# TYPE \(name) \(kind.rawValue)\n\(name) \(PrometheusText.number(value))\n"
        }
        write("process_cpu_seconds_total", kind: .counter, value: Self.processorTime)
        write("process_max_fds", kind: .gauge, value: DescriptorLimit.current.map { Double($0) })
        write("process_open_fds", kind: .gauge, value: Self.openDescriptors.map { Double($0) })
        write("process_resident_memory_bytes", kind: .gauge, value: Self.residentMemory.map { Double($0) })
        write("process_start_time_seconds", kind: .gauge, value: Double(self.startTime))
    }

    /// User and system time, in seconds.
    private static var processorTime: Double? {
        // Microseconds, as POSIX has it; -1 if it is not known.
        let time = Int64(truncatingIfNeeded: clock())
        return time < 0 ? nil : Double(time) / 1e6
    }

    private static var openDescriptors: Int? {
        #if canImport(Darwin)
        let path = "/dev/fd"
        #else
        let path = "/proc/self/fd"
        #endif
        guard let folder = opendir(path) else { return nil }
        defer { closedir(folder) }
        var count = 0
        while readdir(folder) != nil { count += 1 }
        // Without `.`, `..` and the folder itself.
        return max(count - 3, 0)
    }

    /// Bytes, on Linux.
    private static var residentMemory: Int? {
        let descriptor = open("/proc/self/statm", O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var bytes = [UInt8](repeating: 0, count: 256)
        let count = read(descriptor, &bytes, bytes.count)
        guard count > 0 else { return nil }
        // Pages: total, resident, …
        let fields = bytes.prefix(count).split(separator: UInt8(ascii: " "))
        guard fields.count > 1, let pages = Int(String(decoding: fields[1], as: UTF8.self)) else { return nil }
        return pages * Int(sysconf(CInt(_SC_PAGESIZE)))
    }
}
