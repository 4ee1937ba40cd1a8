// SPDX-License-Identifier: Apache-2.0
#if Outbox
import Dispatch
import Foundation
import NIOConcurrencyHelpers

/// Performs the work on a store, in order and on a thread that may block. Work submitted while the disk is busy is done
/// in one transaction, so a hundred messages that are enqueued together wait for the disk once or twice.
final class OutboxWriter: Sendable {
    private struct Work: Sendable {
        /// Performs its part of a transaction. Returns a closure to call once the whole transaction is on disk.
        ///
        /// If the transaction fails it is called again, alone.
        var perform: @Sendable (OutboxStore.Transaction) throws -> @Sendable () -> Void
        var fail: @Sendable (OutboxError) -> Void
        var freesSpace: Bool
    }

    private enum Job: Sendable {
        case work(Work)
        case close(@Sendable () -> Void)
    }

    private struct State {
        var store: OutboxStore?
        var jobs: [Job] = []
        var isScheduled = false
    }

    private static let maximumBatch = 1_000

    private let queue: DispatchQueue
    private let state: NIOLockedValueBox<State>

    init(_ store: OutboxStore, on queue: DispatchQueue) {
        self.state = NIOLockedValueBox(State(store: store))
        self.queue = queue
    }

    /// Submits a part of a transaction.
    ///
    /// - Parameters:
    ///   - freesSpace: Whether it removes something, so that space may be returned to the system.
    ///   - work: The part. It may be called twice, in which case the first call is rolled back.
    ///   - done: Called with the result once it is on disk, in the order of the calls, on the writer's thread.
    func submit<Value: Sendable>(
        freesSpace: Bool = false,
        _ work: @escaping @Sendable (OutboxStore.Transaction) throws -> Value,
        _ done: @escaping @Sendable (Result<Value, OutboxError>) -> Void
    ) {
        self.submit(
            .work(
                Work(
                    perform: { transaction in
                        let value = try work(transaction)
                        return { done(.success(value)) }
                    },
                    fail: { done(.failure($0)) },
                    freesSpace: freesSpace
                )
            )
        )
    }

    /// Performs a part of a transaction, and returns its result once it is on disk.
    func perform<Value: Sendable>(
        freesSpace: Bool = false,
        _ work: @escaping @Sendable (OutboxStore.Transaction) throws -> Value
    ) async throws(OutboxError) -> Value {
        let result: Result<Value, OutboxError> = await withCheckedContinuation { continuation in
            self.submit(freesSpace: freesSpace, work) { continuation.resume(returning: $0) }
        }
        return try result.get()
    }

    /// Closes the store when all earlier work is done. Later work fails with `closed`.
    func close() async {
        await withCheckedContinuation { continuation in
            self.submit(.close { continuation.resume() })
        }
    }

    private func submit(_ job: Job) {
        let schedules = self.state.withLockedValue { state in
            state.jobs.append(job)
            defer { state.isScheduled = true }
            return !state.isScheduled
        }
        if schedules { self.queue.async { self.work() } }
    }

    private func work() {
        while true {
            let batch = self.state.withLockedValue { state in
                let batch = Array(state.jobs.prefix(Self.maximumBatch))
                state.jobs.removeFirst(batch.count)
                if batch.isEmpty { state.isScheduled = false }
                return batch
            }
            guard !batch.isEmpty else { return }
            self.perform(batch)
        }
    }

    private func perform(_ batch: [Job]) {
        // Closing is not part of a transaction, and ends the one before it.
        var together: [Work] = []
        for job in batch {
            switch job {
            case .work(let work):
                together.append(work)
            case .close(let done):
                self.commit(together)
                together = []
                let store = self.state.withLockedValue { state in
                    defer { state.store = nil }
                    return state.store
                }
                // If this fails, the store is closed when its last reference is released.
                try? store?.close()
                done()
            }
        }
        self.commit(together)
    }

    private func commit(_ works: [Work]) {
        guard !works.isEmpty else { return }
        guard let store = self.state.withLockedValue({ $0.store }) else {
            let closed = OutboxError(.closed, message: "the outbox has been closed")
            for work in works { work.fail(closed) }
            return
        }
        do throws(OutboxError) {
            let reports = try store.transaction { transaction in try works.map { try $0.perform(transaction) } }
            for report in reports { report() }
        } catch {
            guard works.count > 1 else {
                works[0].fail(error)
                return
            }
            // Perhaps only one failed, such as one that is too large for the disk.
            for work in works { self.commit([work]) }
            return
        }
        // If this fails the file is merely larger than necessary.
        if works.contains(where: \.freesSpace) { try? store.vacuum() }
    }
}
#endif
