// SPDX-License-Identifier: Apache-2.0
import HHSocketSystem

/// The CPU time of processes, in user and system mode together, in seconds.
enum CPUTime {
    static var ofThisProcess: Double {
        #if canImport(Glibc)
        let who = CInt(RUSAGE_SELF.rawValue)
        #else
        let who = RUSAGE_SELF
        #endif
        var usage = rusage()
        getrusage(who, &usage)
        return Self.seconds(usage.ru_utime) + Self.seconds(usage.ru_stime)
    }

    /// Returns the CPU time of a process, usually in steps of 10 ms; nil without /proc, or if there is no such process.
    static func ofProcess(_ process: Int32) -> Double? {
        guard let stat = try? String(contentsOfFile: "/proc/\(process)/stat", encoding: .isoLatin1),
            let ticks = self.ticks(inStat: stat)
        else { return nil }
        return Double(ticks) / Double(sysconf(CInt(_SC_CLK_TCK)))
    }

    /// Returns the ticks in user and in system mode of a `/proc/PID/stat`. The second field is the program's name in
    /// parentheses, which may itself contain spaces and parentheses.
    static func ticks(inStat stat: String) -> UInt64? {
        guard let name = stat.lastIndex(of: ")") else { return nil }
        let fields = stat[stat.index(after: name)...].split(separator: " ")
        // utime and stime are the fields 14 and 15; the first one here is the third.
        guard fields.count > 12, let user = UInt64(fields[11]), let system = UInt64(fields[12]) else { return nil }
        return user + system
    }

    private static func seconds(_ time: timeval) -> Double {
        Double(time.tv_sec) + Double(time.tv_usec) * 1e-6
    }
}

/// The CPU time of a measurement, in seconds.
struct CPUUse: Sendable, Equatable {
    var client: Double
    /// The server's share; nil if it is not known.
    var server: Double?

    /// Returns the CPU time used within `window`, or until the Swift task is cancelled.
    static func measured(in window: MeasuredWindow, serverPID: Int32?) async -> CPUUse {
        try? await Uptime.sleep(until: window.begin)
        let before = Self.soFar(serverPID: serverPID)
        try? await Uptime.sleep(until: window.end)
        return Self.soFar(serverPID: serverPID).since(before)
    }

    /// Returns the CPU time that both processes have used until now.
    static func soFar(serverPID: Int32?) -> CPUUse {
        CPUUse(client: CPUTime.ofThisProcess, server: serverPID.flatMap { CPUTime.ofProcess($0) })
    }

    /// Returns the CPU time used between two readings of ``soFar(serverPID:)``.
    func since(_ before: CPUUse) -> CPUUse {
        var use = CPUUse(client: self.client - before.client)
        if let before = before.server, let after = self.server { use.server = after - before }
        return use
    }

    /// The line of a report; nil if nothing was counted.
    ///
    /// - Parameter unit: The unit that was counted.
    func line(per unit: String, of count: Int) -> String? {
        guard count > 0 else { return nil }
        func share(_ seconds: Double) -> String { LatencyChart.text(nanoseconds: seconds * 1e9 / Double(count)) }
        let server = self.server.map { ", server \(share($0))" } ?? ""
        return "CPU time for each \(unit): client \(share(self.client))\(server)"
    }
}
