// SPDX-License-Identifier: Apache-2.0
import TestSupport
import Testing

@testable import HHSocket

private func path(_ name: String) -> NetworkPath { NetworkPath(isReachable: true, name: name) }

@Suite struct ManualNetworkMonitorTests {
    @Test func everyObserverIsNotifiedOfThePresentPathAndEachThatFollows() async throws {
        let monitor = ManualNetworkMonitor()
        #expect(monitor.path == NetworkPath(isReachable: true))
        var early = monitor.paths().makeAsyncIterator()
        #expect(await early.next() == NetworkPath(isReachable: true))
        monitor.update(path("wifi"))
        var late = monitor.paths().makeAsyncIterator()
        monitor.update(path("wifi"))
        monitor.update(NetworkPath(isReachable: false))
        for next in [path("wifi"), NetworkPath(isReachable: false)] {
            #expect(await early.next() == next)
            #expect(await late.next() == next)
        }
    }

    @Test func readerWhoIsSlowGetsTheLatest() async throws {
        let monitor = ManualNetworkMonitor(path("0"))
        var paths = monitor.paths().makeAsyncIterator()
        for number in 1...20 { monitor.update(path("\(number)")) }
        for number in 5...20 { #expect(await paths.next() == path("\(number)")) }
    }

    @Test func streamThatIsGivenUpIsForgottenAndOneWhoseMonitorIsGoneEnds() async throws {
        var monitor: ManualNetworkMonitor? = ManualNetworkMonitor()
        do {
            let paths = monitor?.paths()
            #expect(monitor?.observerCount == 1)
            withExtendedLifetime(paths) {}
        }
        #expect(monitor?.observerCount == 0)
        let paths = try #require(monitor?.paths())
        monitor = nil
        try await withDeadline("the end") { for await _ in paths {} }
    }
}
