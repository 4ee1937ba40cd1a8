// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketTransferValues
import NIOConcurrencyHelpers

/// The state that a transfer and its handle share: how far it is, and its result.
final class TransferState: Sendable {
    typealias Outcome = Result<TransferResult, TransferError>

    private struct Values {
        var progress = TransferProgress()
        var outcome: Outcome?
        var waiters: [CheckedContinuation<Void, Never>] = []
        var readers: [Int: AsyncStream<TransferProgress>.Continuation] = [:]
        var lastReader = 0
    }

    private let values = NIOLockedValueBox(Values())
    private let completion: (@Sendable (Outcome) -> Void)?
    private let loop: SocketLoop

    /// - Parameters:
    ///   - completion: Called once, with the result.
    ///   - loop: The client's, on whose callback queue it is called.
    init(loop: SocketLoop, completion: (@Sendable (Outcome) -> Void)?) {
        self.loop = loop
        self.completion = completion
    }

    // MARK: The transfer's side

    func report(_ progress: TransferProgress) {
        let readers = self.values.withLockedValue { values -> [AsyncStream<TransferProgress>.Continuation] in
            guard values.outcome == nil else { return [] }
            values.progress = progress
            return Array(values.readers.values)
        }
        for reader in readers { reader.yield(progress) }
    }

    /// Sets the result, unless there is one.
    func end(_ outcome: Outcome) {
        let ended = self.values.withLockedValue { values -> Values? in
            guard values.outcome == nil else { return nil }
            values.outcome = outcome
            defer { (values.waiters, values.readers) = ([], [:]) }
            return values
        }
        guard let ended else { return }
        for reader in ended.readers.values { reader.finish() }
        for waiter in ended.waiters { waiter.resume() }
        if let completion = self.completion { self.loop.callbackQueue.run(on: self.loop) { completion(outcome) } }
    }

    // MARK: The handle's side

    var progress: TransferProgress { self.values.withLockedValue { $0.progress } }

    var outcome: Outcome? { self.values.withLockedValue { $0.outcome } }

    /// Waits for the result.
    func wait() async -> Outcome {
        await withCheckedContinuation { waiter in
            let isOver = self.values.withLockedValue { values in
                if values.outcome == nil { values.waiters.append(waiter) }
                return values.outcome != nil
            }
            if isOver { waiter.resume() }
        }
        return self.outcome ?? .failure(TransferError(.cancelled, "the transfer was cancelled"))
    }

    func makeReader() -> AsyncStream<TransferProgress> {
        let (stream, reader) = AsyncStream.makeStream(of: TransferProgress.self, bufferingPolicy: .bufferingNewest(1))
        let (progress, number) = self.values.withLockedValue { values -> (TransferProgress, Int?) in
            guard values.outcome == nil else { return (values.progress, nil) }
            values.lastReader += 1
            values.readers[values.lastReader] = reader
            return (values.progress, values.lastReader)
        }
        reader.yield(progress)
        guard let number else {
            reader.finish()
            return stream
        }
        reader.onTermination = { [weak self] _ in
            _ = self?.values.withLockedValue { $0.readers.removeValue(forKey: number) }
        }
        return stream
    }
}
