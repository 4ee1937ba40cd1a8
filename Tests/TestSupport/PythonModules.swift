// SPDX-License-Identifier: Apache-2.0
package import Foundation

/// A Python that can import `module` and then run `check`: the one that `HHSOCKET_PYTHON` names, or else the first such
/// `python3` in PATH; nil if there is none.
package func python(having module: String, _ check: String = "") -> URL? {
    let environment = ProcessInfo.processInfo.environment
    let folders = environment["PATH"]?.split(separator: ":") ?? []
    let candidates =
        environment["HHSOCKET_PYTHON"].map { [URL(fileURLWithPath: $0)] }
        ?? folders.map { URL(fileURLWithPath: String($0)).appendingPathComponent("python3") }
    return candidates.first { candidate in
        guard FileManager.default.isExecutableFile(atPath: candidate.path) else { return false }
        let process = Process()
        process.executableURL = candidate
        process.arguments = ["-c", "import \(module); \(check)"]
        process.standardError = FileHandle.nullDevice
        guard (try? process.run()) != nil else { return false }
        process.waitUntilExit()
        return process.terminationStatus == 0
    }
}
