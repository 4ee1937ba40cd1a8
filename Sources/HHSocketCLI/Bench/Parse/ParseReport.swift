// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket

/// Prints the results of `bench --parse`.
struct ParseReport {
    /// The largest payload for which one frame fits into the stream.
    static let largestBody =
        ParseBench.streamLength - FrameEncoder(direction: .request).encodedLength(payloadLength: 0)

    var json: Bool

    static func check(body: Int) throws {
        guard (0...self.largestBody).contains(body) else {
            throw ValidationError("--body-length is a size from 0 to \(self.largestBody) bytes, not \(body).")
        }
    }

    func print(_ result: ParseBench.Result) throws {
        guard self.json else {
            let numbers = String(
                format: "%.0f frames/s, %.3f GB/s (%d B bodies, %.2f s)",
                result.framesPerSecond,
                result.gigabytesPerSecond,
                result.body,
                result.seconds
            )
            return try StandardOutput.write("\(result.peer): \(numbers)\n")
        }
        var object = JSONLine()
        object.add("peer", result.peer)
        object.add("workload", "parse")
        object.add("body", result.body)
        object.add("frames_per_s", result.framesPerSecond, digits: 0)
        object.add("gb_per_s", result.gigabytesPerSecond, digits: 3)
        object.add("seconds", result.seconds, digits: 3)
        object.add("frames", result.frames)
        try StandardOutput.write(object.line)
    }
}
