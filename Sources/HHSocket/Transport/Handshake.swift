import DequeModule
import NIOConcurrencyHelpers
import NIOCore

/// What a ``HandshakeGate`` has in hand: a connection that is made and not ready yet, to exchange frames on.
///
/// Frames that come and are not taken by the gate are delivered as usual once it has returned. Everything here throws when
/// the handshake is over: when it took too long, the connection was lost, or the user disconnected.
public final class Handshake: Sendable {
    private struct State {
        var frames: Deque<Frame> = []
        var readers: Deque<CheckedContinuation<Result<Frame, SocketError>, Never>> = []
        var exchanges: [UInt32: CheckedContinuation<Result<Frame, SocketError>, Never>] = [:]
        var nextSerial: UInt32
        var end: SocketError?
    }

    /// So many frames may wait for the gate; one more ends the handshake.
    public static let maximumWaitingFrames = 1_024

    /// The server at the other end.
    public let endpoint: Endpoint
    /// Which attempt since the last ready connection this is, from 1.
    public let attempt: Int
    private let state: NIOLockedValueBox<State>
    private let transmit: @Sendable (Frame, @escaping @Sendable (Result<Void, SocketError>) -> Void) -> Void

    init(
        endpoint: Endpoint,
        attempt: Int,
        lastSerial: UInt32,
        transmit: @escaping @Sendable (Frame, @escaping @Sendable (Result<Void, SocketError>) -> Void) -> Void
    ) {
        self.endpoint = endpoint
        self.attempt = attempt
        self.state = NIOLockedValueBox(State(nextSerial: lastSerial))
        self.transmit = transmit
    }

    /// Sends a frame, before everything that waits for the connection to be ready.
    ///
    /// - Throws: ``SocketError`` if it cannot leave, or if the handshake is over.
    public func send(_ frame: Frame) async throws(SocketError) {
        if let end = self.state.withLockedValue({ $0.end }) { throw end }
        let result = await withCheckedContinuation { continuation in
            self.transmit(frame) { continuation.resume(returning: $0) }
        }
        try result.get()
    }

    /// The next frame that comes and answers no ``exchange(type:payload:)``.
    ///
    /// - Throws: ``SocketError`` when the handshake is over.
    public func nextFrame() async throws(SocketError) -> Frame {
        let result: Result<Frame, SocketError> = await withCheckedContinuation { continuation in
            let ready: Result<Frame, SocketError>? = self.state.withLockedValue { state in
                if let frame = state.frames.popFirst() { return .success(frame) }
                if let end = state.end { return .failure(end) }
                state.readers.append(continuation)
                return nil
            }
            if let ready { continuation.resume(returning: ready) }
        }
        return try result.get()
    }

    /// Sends a request and waits for its answer, whatever its status. Its serial is taken from the far end of the range, so
    /// that an answer that comes too late belongs to no later call.
    ///
    /// - Throws: ``SocketError`` if the request cannot leave, or when the handshake is over.
    public func exchange(type: UInt32, payload: ByteBuffer = ByteBuffer()) async throws(SocketError) -> Frame {
        let serial = self.state.withLockedValue { state in
            defer { state.nextSerial &-= 1 }
            return state.nextSerial
        }
        let result: Result<Frame, SocketError> = await withCheckedContinuation { continuation in
            let end: SocketError? = self.state.withLockedValue { state in
                if state.end == nil { state.exchanges[serial] = continuation }
                return state.end
            }
            if let end { return continuation.resume(returning: .failure(end)) }
            self.transmit(Frame(type: type, serial: serial, payload: payload)) { result in
                guard case .failure(let error) = result else { return }
                self.state.withLockedValue { $0.exchanges.removeValue(forKey: serial) }?
                    .resume(returning: .failure(error))
            }
        }
        return try result.get()
    }

    // MARK: For the socket thread

    /// False if too many frames wait.
    func receive(_ frame: Frame) -> Bool {
        enum Taker {
            case one(CheckedContinuation<Result<Frame, SocketError>, Never>), queue, nobody
        }
        let taker: Taker = self.state.withLockedValue { state in
            if let exchange = state.exchanges.removeValue(forKey: frame.serial) { return .one(exchange) }
            if let reader = state.readers.popFirst() { return .one(reader) }
            guard state.frames.count < Self.maximumWaitingFrames else { return .nobody }
            state.frames.append(frame)
            return .queue
        }
        switch taker {
        case .one(let continuation): continuation.resume(returning: .success(frame))
        case .queue: break
        case .nobody: return false
        }
        return true
    }

    /// Ends the handshake for whoever still waits in it.
    ///
    /// - Returns: The frames that nobody took.
    @discardableResult
    func end(_ error: SocketError) -> [Frame] {
        let (waiting, frames) = self.state.withLockedValue { state in
            if state.end == nil { state.end = error }
            defer {
                state.readers = []
                state.exchanges = [:]
                state.frames = []
            }
            return (Array(state.readers) + Array(state.exchanges.values), Array(state.frames))
        }
        for continuation in waiting { continuation.resume(returning: .failure(error)) }
        return frames
    }
}
