// SPDX-License-Identifier: Apache-2.0
import Dispatch
import HHSocket
import HHSocketTransferValues
import NIOConcurrencyHelpers
import Testing

/// Work that the first thread to arrive does.
@Suite struct SharedWorkTests {
    private let count = NIOLockedValueBox(0)

    private func work(_ body: @escaping @Sendable () -> Void = {}) -> SharedWork<Int> {
        SharedWork { [count] in
            body()
            return count.withLockedValue { count in
                count += 1
                return 7
            }
        }
    }

    @Test func workIsDoneHereIfNoThreadHasBegun() {
        let work = self.work()
        #expect(work.finish() == 7)
        // A late thread does nothing.
        work.begin()
        #expect(work.finish() == 7)
        #expect(self.count.withLockedValue { $0 } == 1)
    }

    @Test func workThatAnotherThreadHasBegunIsAwaited() {
        let (begun, mayContinue) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        let work = self.work {
            begun.signal()
            mayContinue.wait()
        }
        DispatchQueue.global().async { work.begin() }
        begun.wait()
        DispatchQueue.global().async { mayContinue.signal() }
        #expect(work.finish() == 7)
        #expect(self.count.withLockedValue { $0 } == 1)
    }

    @Test func itIsDoneOnceWhoeverComes() {
        for _ in 0..<200 {
            self.count.withLockedValue { $0 = 0 }
            let work = self.work()
            DispatchQueue.concurrentPerform(iterations: 4) { number in
                if number % 2 == 0 { work.begin() } else { #expect(work.finish() == 7) }
            }
            #expect(work.finish() == 7)
            #expect(self.count.withLockedValue { $0 } == 1)
        }
    }
}
