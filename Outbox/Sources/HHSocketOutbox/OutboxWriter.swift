#if Outbox
import Dispatch
import Foundation
import NIOConcurrencyHelpers
import NIOCore

/// Has what is asked of a store done, in order and on a thread that may block. What was asked while the disk was busy is
/// done in one transaction, so a hundred messages that are enqueued together wait for the disk once or twice.
final class OutboxWriter: Sendable {
    enum Job: Sendable {
        case insert(
            OutboxMessage,
            enqueued: Date,
            expires: Date?,
            @Sendable (Result<OutboxStore.Insertion, OutboxError>) -> Void
        )
        case remove([OutboxEntry.ID], @Sendable (OutboxError?) -> Void)
        case read(
            OutboxEntry.ID,
            @Sendable (Result<(body: ByteBuffer, metadata: [String: String])?, OutboxError>) -> Void
        )
        /// Gives space back.
        case vacuum
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

    func submit(_ job: Job) {
        let schedules = self.state.withLockedValue { state in
            state.jobs.append(job)
            defer { state.isScheduled = true }
            return !state.isScheduled
        }
        if schedules { self.queue.async { self.work() } }
    }

    private func work() {
        while true {
            let (store, batch) = self.state.withLockedValue { state in
                let batch = Array(state.jobs.prefix(Self.maximumBatch))
                state.jobs.removeFirst(batch.count)
                if batch.isEmpty { state.isScheduled = false }
                return (state.store, batch)
            }
            guard !batch.isEmpty else { return }
            if let store {
                self.perform(batch, store)
            } else {
                let closed = OutboxError(.closed, message: "the outbox has been closed")
                for job in batch { Self.fail(job, closed) }
            }
        }
    }

    private func perform(_ batch: [Job], _ store: OutboxStore) {
        // What is no part of a transaction ends the one before it.
        var jobs: [Job] = []
        for job in batch {
            switch job {
            case .insert, .remove, .read:
                jobs.append(job)
            case .vacuum:
                self.commit(jobs, store)
                jobs = []
                // If it fails the file is larger than it need be.
                try? store.vacuum()
            case .close(let done):
                self.commit(jobs, store)
                jobs = []
                self.state.withLockedValue { $0.store = nil }
                // What cannot be closed is closed by the end of its last reference.
                try? store.close()
                done()
            }
        }
        if self.state.withLockedValue({ $0.store != nil }) {
            self.commit(jobs, store)
        } else {
            for job in jobs { Self.fail(job, OutboxError(.closed, message: "the outbox has been closed")) }
        }
    }

    private func commit(_ jobs: [Job], _ store: OutboxStore) {
        guard !jobs.isEmpty else { return }
        do throws(OutboxError) {
            let tellings = try store.transaction { transaction in try jobs.map { try Self.perform($0, transaction) } }
            for tell in tellings { tell() }
        } catch {
            guard jobs.count > 1 else {
                for job in jobs { Self.fail(job, error) }
                return
            }
            // Perhaps it was one alone, such as one that is too large for the disk.
            for job in jobs { self.commit([job], store) }
        }
    }

    /// - Returns: What is to be called when all is on disk.
    private static func perform(
        _ job: Job,
        _ transaction: OutboxStore.Transaction
    ) throws -> () -> Void {
        switch job {
        case .insert(let message, let enqueued, let expires, let tell):
            let insertion = try transaction.insert(message, enqueued: enqueued, expires: expires)
            return { tell(.success(insertion)) }
        case .remove(let ids, let tell):
            try transaction.remove(ids)
            return { tell(nil) }
        case .read(let id, let tell):
            let body = try transaction.body(id)
            return { tell(.success(body)) }
        case .vacuum, .close:
            return {}
        }
    }

    private static func fail(_ job: Job, _ error: OutboxError) {
        switch job {
        case .insert(_, _, _, let tell): tell(.failure(error))
        case .remove(_, let tell): tell(error)
        case .read(_, let tell): tell(.failure(error))
        case .vacuum: break
        case .close(let done): done()
        }
    }
}
#endif
