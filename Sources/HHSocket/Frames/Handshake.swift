// SPDX-License-Identifier: Apache-2.0
import DequeModule
import NIOConcurrencyHelpers
import NIOCore

/// A connection that is not ready yet, on which a ``HandshakeGate`` exchanges frames.
///
/// Frames that the gate does not take are delivered as usual once it has returned. All methods throw when the handshake
/// is over: when it exceeded its time, the connection was lost, or the user disconnected.
public final class Handshake: Sendable {
    private typealias Waiter = CheckedContinuation<Result<Frame, SocketError>, Never>

    private struct State {
        /// Those that wait for the gate, with ``detached`` payloads.
        var frames: Deque<Frame> = []
        /// The memory that their payloads keep.
        var waitingBytes = 0
        var readers: Deque<(number: Int, waiter: Waiter)> = []
        var lastReader = 0
        var exchanges: [UInt32: Waiter] = [:]
        /// Called with the answer to hello.
        var hello: Waiter?
        var agreement: Agreement?
        var opener: Opener?
        var nextSerial: UInt32
        var end: SocketError?
    }

    /// A function that opens the envelope of a received frame, where an agreement lets frames have one.
    package typealias Opener = @Sendable (Frame) throws(SocketError) -> Frame

    /// The number of frames that may wait for the gate; one more ends the handshake, as do more than 16 MiB of them.
    package static let maximumWaitingFrames = 1_024
    /// The memory that payloads may keep while their frames wait for the gate, in bytes. One frame may always wait.
    static let maximumWaitingBytes = 16 << 20

    /// The server at the other end.
    public let endpoint: Endpoint
    /// Which attempt since the last ready connection this is, from 1.
    package let attempt: Int
    /// Whether the transport of the frames compresses them: hello does not agree on compression then.
    package let isCompressed: Bool
    /// Whether a redirect has led to a server of another origin, which must not get the client's secrets.
    package let isOfAnotherOrigin: Bool
    private let state: NIOLockedValueBox<State>
    private let transmit: @Sendable (Frame, @escaping @Sendable (Result<Void, SocketError>) -> Void) -> Void

    init(
        endpoint: Endpoint,
        attempt: Int,
        isCompressed: Bool = false,
        isOfAnotherOrigin: Bool = false,
        lastSerial: UInt32,
        transmit: @escaping @Sendable (Frame, @escaping @Sendable (Result<Void, SocketError>) -> Void) -> Void
    ) {
        self.endpoint = endpoint
        self.attempt = attempt
        self.isCompressed = isCompressed
        self.isOfAnotherOrigin = isOfAnotherOrigin
        self.state = NIOLockedValueBox(State(nextSerial: lastSerial))
        self.transmit = transmit
    }

    /// Sends a frame, before all frames that wait for the connection to be ready.
    ///
    /// - Throws: ``SocketError`` if it cannot be sent, or if the handshake is over.
    public func send(_ frame: Frame) async throws(SocketError) {
        if let end = self.state.withLockedValue({ $0.end }) { throw end }
        let result = await withCheckedContinuation { continuation in
            self.transmit(frame) { continuation.resume(returning: $0) }
        }
        try result.get()
    }

    /// Sends hello and waits for its answer, whatever its status. Until the handshake is over types may have the flags
    /// that an agreement can allow.
    ///
    /// - Throws: ``SocketError`` as ``exchange(type:payload:)``; with the code `checksumMismatch` if the answer has a
    ///   wrong checksum.
    package func exchangeHello(_ payload: ByteBuffer) async throws(SocketError) -> Frame {
        let result = await withTaskCancellationHandler {
            await withCheckedContinuation { (waiter: Waiter) in
                let end: SocketError? = self.state.withLockedValue { state in
                    assert(state.hello == nil, "hello is said once")
                    let end = state.end ?? (Task.isCancelled ? self.cancelled : nil)
                    if end == nil { state.hello = waiter }
                    return end
                }
                if let end { return waiter.resume(returning: .failure(end)) }
                self.transmit(Frame(type: FrameType.hello, serial: FrameSerial.hello, payload: payload)) { result in
                    if case .failure(let error) = result { self.endHello(.failure(error)) }
                }
            }
        } onCancel: {
            self.endHello(.failure(self.cancelled))
        }
        return try self.opened(result)
    }

    /// Records the result of hello. It applies to the connection once that is ready, and to the gate's own frames at
    /// once.
    ///
    /// - Parameter opener: Opens the frames that ``nextFrame()`` and ``exchange(type:payload:)`` return, if they have
    ///   flags.
    package func agree(_ agreement: Agreement, opener: @escaping Opener) {
        self.state.withLockedValue { state in
            state.agreement = agreement
            state.opener = opener
        }
    }

    private func opened(_ result: Result<Frame, SocketError>) throws(SocketError) -> Frame {
        // Read in any case: the thread sanitizer derives from the lock, and not from a continuation, that the frame was
        // written before.
        let opener = self.state.withLockedValue { $0.opener }
        let frame = try result.get()
        guard frame.type & FrameType.allFlags != 0, let opener else { return frame }
        return try opener(frame)
    }

    /// The next frame that is not the answer to an ``exchange(type:payload:)``.
    ///
    /// - Throws: ``SocketError`` when the handshake is over, or with code `cancelled` when the Swift task is cancelled.
    public func nextFrame() async throws(SocketError) -> Frame {
        let number = self.state.withLockedValue { state in
            state.lastReader += 1
            return state.lastReader
        }
        let result = await withTaskCancellationHandler {
            await withCheckedContinuation { (waiter: Waiter) in
                let ready: Result<Frame, SocketError>? = self.state.withLockedValue { state in
                    if let frame = state.frames.popFirst() {
                        state.waitingBytes -= frame.payload.storageCapacity
                        return .success(frame)
                    }
                    if let end = state.end { return .failure(end) }
                    // Cancelled from here on, it is found by the handler below.
                    if Task.isCancelled { return .failure(self.cancelled) }
                    state.readers.append((number, waiter))
                    return nil
                }
                if let ready { waiter.resume(returning: ready) }
            }
        } onCancel: {
            let waiter = self.state.withLockedValue { state -> Waiter? in
                guard let index = state.readers.firstIndex(where: { $0.number == number }) else { return nil }
                return state.readers.remove(at: index).waiter
            }
            waiter?.resume(returning: .failure(self.cancelled))
        }
        return try self.opened(result)
    }

    /// Sends a request and waits for its answer, whatever its status. Its serial is from the end of the range, so that
    /// a late answer never matches a later call.
    ///
    /// - Throws: ``SocketError`` if the request cannot be sent, when the handshake is over, or with code `cancelled`
    ///   when the Swift task is cancelled.
    public func exchange(type: UInt32, payload: ByteBuffer = ByteBuffer()) async throws(SocketError) -> Frame {
        let serial = self.state.withLockedValue { state in
            defer { state.nextSerial &-= 1 }
            return state.nextSerial
        }
        let result = await withTaskCancellationHandler {
            await withCheckedContinuation { (waiter: Waiter) in
                let end: SocketError? = self.state.withLockedValue { state in
                    let end = state.end ?? (Task.isCancelled ? self.cancelled : nil)
                    if end == nil { state.exchanges[serial] = waiter }
                    return end
                }
                if let end { return waiter.resume(returning: .failure(end)) }
                self.transmit(Frame(type: type, serial: serial, payload: payload)) { result in
                    if case .failure(let error) = result { self.endExchange(serial, error) }
                }
            }
        } onCancel: {
            self.endExchange(serial, self.cancelled)
        }
        return try self.opened(result)
    }

    private func endExchange(_ serial: UInt32, _ error: SocketError) {
        self.state.withLockedValue { $0.exchanges.removeValue(forKey: serial) }?.resume(returning: .failure(error))
    }

    private var cancelled: SocketError {
        SocketError(.cancelled, message: "the gate of \(self.endpoint) waits no longer", endpoint: self.endpoint)
    }

    // MARK: For the socket thread

    var agreement: Agreement? { self.state.withLockedValue { $0.agreement } }

    /// Whether an answer to hello is waited for.
    var awaitsHello: Bool { self.state.withLockedValue { $0.hello != nil } }

    /// Completes the wait for the answer to hello, if there is one.
    func endHello(_ result: Result<Frame, SocketError>) {
        let waiter = self.state.withLockedValue { state in
            defer { state.hello = nil }
            return state.hello
        }
        waiter?.resume(returning: result)
    }

    /// - Parameter frame: A frame that may be kept.
    /// - Returns: False if too many frames wait.
    func receive(_ frame: Frame) -> Bool {
        enum Taker {
            case one(Waiter), queue, nobody
        }
        let taker: Taker = self.state.withLockedValue { state in
            if let exchange = state.exchanges.removeValue(forKey: frame.serial) { return .one(exchange) }
            if let reader = state.readers.popFirst() { return .one(reader.waiter) }
            let bytes = state.waitingBytes + frame.payload.storageCapacity
            guard state.frames.count < Self.maximumWaitingFrames,
                state.frames.isEmpty || bytes <= Self.maximumWaitingBytes
            else { return .nobody }
            state.frames.append(frame)
            state.waitingBytes = bytes
            return .queue
        }
        switch taker {
        case .one(let continuation): continuation.resume(returning: .success(frame))
        case .queue: break
        case .nobody: return false
        }
        return true
    }

    /// Ends the handshake, failing every wait in it.
    ///
    /// - Returns: The frames that the gate did not take.
    @discardableResult
    func end(_ error: SocketError) -> [Frame] {
        let (waiting, frames) = self.state.withLockedValue { state in
            if state.end == nil { state.end = error }
            defer {
                state.readers = []
                state.exchanges = [:]
                state.hello = nil
                state.frames = []
                state.waitingBytes = 0
            }
            let waiting = state.readers.map(\.waiter) + Array(state.exchanges.values) + (state.hello.map { [$0] } ?? [])
            return (waiting, state.frames.isEmpty ? [] : Array(state.frames))
        }
        for continuation in waiting { continuation.resume(returning: .failure(error)) }
        return frames
    }
}
