#if Outbox
import Dispatch
import Foundation
import NIOConcurrencyHelpers

/// Performs the work on a store, in order and on a thread that may block. What was submitted while the disk was busy is
/// done in one transaction, so a hundred messages that are enqueued together wait for the disk once or twice.
final class OutboxWriter: Sendable {
    private struct Work: Sendable {
        /// Does its part of a transaction. Returns what is to be called once all of it is on disk.
        ///
        /// Where the transaction fails it is called again, alone.
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

    /// Has a part of a transaction performed.
    ///
    /// - Parameters:
    ///   - freesSpace: Whether it removes something, so that space may be given back to the system.
    ///   - work: The part. It may be called twice, the first time without effect.
    ///   - done: Called with its result when that is on disk, in the order of the calls, on the writer's thread.
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

    /// Has a part of a transaction performed, and returns its result when that is on disk.
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
        // Closing is no part of a transaction, and ends the one before it.
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
                // What cannot be closed is closed by the end of its last reference.
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
            // Perhaps it was one alone, such as one that is too large for the disk.
            for work in works { self.commit([work]) }
            return
        }
        // If it fails the file is larger than it need be.
        if works.contains(where: \.freesSpace) { try? store.vacuum() }
    }
}
#endif
