// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC

/// The frames that a client dropped, for `--verbose`.
struct DroppedFrames {
    private var reported: ClientStatistics?

    /// Returns a line about the frames that were dropped since the last call; nil if there were none.
    mutating func news(_ statistics: ClientStatistics) -> String? {
        let kinds: [(KeyPath<ClientStatistics, Int>, String)] = [
            (\.unknownResponses, "with a serial that no request had and that is not the format's for pushes"),
            (\.lateResponses, "that answered a request too late"),
            (\.duplicateResponses, "that answered a request again"),
            (\.checksumFailures, "with a wrong checksum"), (\.malformedFrames, "that were malformed"),
            (\.malformedPushes, "with a push that could not be read"),
            (\.droppedPushes, "with a push that arrived faster than it could be printed"),
        ]
        let parts = kinds.compactMap { path, reason in
            let count = statistics[keyPath: path] - (self.reported?[keyPath: path] ?? 0)
            return count > 0 ? "\(count) \(reason)" : nil
        }
        self.reported = statistics
        return parts.isEmpty ? nil : "dropped frames: \(parts.joined(separator: ", "))"
    }
}
