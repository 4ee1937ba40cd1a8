// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import TestSupport

/// The texts of the next `count` pushes.
func texts(_ count: Int, of pushes: SocketPushes) async throws -> [String] {
    try await withDeadline("\(count) pushes") {
        var texts: [String] = []
        var iterator = pushes.makeAsyncIterator()
        while texts.count < count, let push = await iterator.next() { texts.append(push.string) }
        return texts
    }
}
