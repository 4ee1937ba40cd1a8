// SPDX-License-Identifier: Apache-2.0
import Dispatch
import TestSupport
import Testing

@testable import HHSocket

@Suite(.tags(.io), .timeLimit(.minutes(5))) struct PathSettlerTests {
    @Test func aBurstOfPathsIsReportedOnceAsTheLastOfThem() async throws {
        let reported = Watched<[String?]>([])
        let queue = DispatchQueue(label: "paths")
        let settler = PathSettler(queue: queue) { path in reported.withLockedValue { $0.append(path.name) } }
        queue.sync {
            settler.take(NetworkPath(isReachable: true, name: "first"))
            #expect(reported.current == ["first"])
            for name in ["wifi", "none", "cellular"] { settler.take(NetworkPath(isReachable: true, name: name)) }
        }
        try await reported.wait("the last") { $0.last == "cellular" }
        #expect(reported.current == ["first", "cellular"])
        queue.sync {
            settler.take(NetworkPath(isReachable: true, name: "too late"))
            settler.cancel()
        }
        // After this time all paths have been reported.
        try await withDeadline("the time of a burst") {
            await withCheckedContinuation { continuation in
                queue.asyncAfter(deadline: .now() + PathSettler.settlingTime) { continuation.resume() }
            }
        }
        #expect(reported.current == ["first", "cellular"])
    }
}
