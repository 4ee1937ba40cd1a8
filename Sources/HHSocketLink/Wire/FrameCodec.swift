// SPDX-License-Identifier: Apache-2.0
public import NIOCore

/// A codec for frames that a ``WireFormat/Layout`` cannot describe: bytes to frames and back, without I/O.
///
/// A format made from a codec (``WireFormat/init(codec:rules:)``) works like any other format. <doc:FrameCodecs> has
/// one for LDAP; `WireFormatVerifier` in `HHSocketTesting` finds the usual faults of a codec.
///
/// ```swift
/// struct LineCodec: FrameCodec { … }
///
/// configuration.wireFormat = try WireFormat(
///     codec: LineCodec(),
///     rules: WireFormat.Rules(name: "lines", hasStatus: false)
/// )
/// ```
/// A codec is a value. The one in a format is never mutated: each connection decodes with a copy, which may store how
/// far it has searched, and encodes with the original. A codec must not trap, whatever the bytes are; any other fault
/// ends its connection with a ``FrameError``.
public protocol FrameCodec: Sendable {
    /// Decodes the next frame from the front of `bytes`.
    ///
    /// Until it returns a frame or throws, it is called again, whenever bytes arrive, with the same bytes followed by
    /// the new ones. Bytes arrive in pieces of any length: the first call may have one byte, or several frames.
    ///
    /// - Parameters:
    ///   - bytes: All received bytes that do not belong to an earlier frame. If a frame is returned, its bytes must
    ///     have been read (the reader index is at the next frame); otherwise none. Nothing else of the buffer may
    ///     change. A payload may be a slice of it.
    ///   - direction: The direction of the frames; always the same for one copy.
    ///   - maximumPayloadLength: The largest payload accepted, in bytes. Refuse a frame that announces more as soon as
    ///     its length is known; one with a larger payload is refused anyway, as are this number of bytes plus 64 KiB
    ///     without a frame.
    /// - Returns: The frame; nil if more bytes are needed. Its status counts only in responses of formats whose
    ///   ``WireFormat/Rules`` have statuses, and its type does not if their responses have none.
    /// - Throws: Any error: these bytes cannot begin a frame, whatever follows. The connection ends with a
    ///   ``FrameError``, whose message contains the error. A ``FrameError`` is passed on unchanged, such as
    ///   ``FrameError/payloadTooLarge(length:limit:type:serial:)``.
    mutating func decode(
        _ bytes: inout ByteBuffer,
        _ direction: FrameDirection,
        maximumPayloadLength: Int
    ) throws -> Frame?

    /// Appends a frame, at least one byte. Equal frames must have equal bytes: a push is encoded once for many
    /// connections, and a frame once before it is sent, to learn whether that is possible.
    ///
    /// - Parameters:
    ///   - frame: The frame, with the program's status, which is ``Status/ok`` in requests.
    ///   - direction: The direction of the frame.
    ///   - bytes: The empty buffer to append to; nothing else may be done with it.
    /// - Throws: Any error: the format has no such frame. A call then fails with ``SocketError/Code/invalidArgument``;
    ///   a server answers with ``Status/unknown`` instead.
    func encode(_ frame: Frame, _ direction: FrameDirection, into bytes: inout ByteBuffer) throws
}

extension WireFormat {
    /// The rules of a format whose frames a ``FrameCodec`` reads and writes: the parts of a ``Layout`` other than
    /// headers.
    public struct Rules: Sendable, Hashable {
        /// The name of the format in messages.
        package var name: String
        /// The types that applications may use. Types below are reserved for the connection.
        package var applicationTypes: ClosedRange<UInt32>
        /// The serials of requests: counted from the first one to the last, and then from the first again. 0 is none.
        package var requestSerials: ClosedRange<UInt32>
        /// Whether responses have a status. If they do not, every response counts as ``Status/ok``.
        package var hasStatus: Bool
        /// Whether responses have a type. If they do not, a response has the type of its call, and there are no pushes.
        package var responsesHaveType: Bool
        /// Nil: neither side pings.
        package var heartbeat: Heartbeat?
        /// The pushes of a server; nil for none. A codec's pushes cannot be identified by a flag: if other bytes mark a
        /// frame as a push, the codec gives it a serial that no request has.
        package var push: Push?
        /// The cancels; nil if a server is not notified that an answer is no longer needed.
        package var cancel: Cancel?

        /// - Parameters:
        ///   - name: The name in messages.
        ///   - applicationTypes: The types that applications may use; 16 to 0x1FFFFFFF by default.
        ///   - requestSerials: The serials of requests; 50 to 0xFFFFFFFF by default.
        ///   - hasStatus: Whether responses have a status.
        ///   - responsesHaveType: Whether responses have a type; true by default.
        ///   - heartbeat: The heartbeats; nil, the default, for none.
        ///   - push: The pushes; nil, the default, for none.
        ///   - cancel: The cancels; nil, the default, for none.
        public init(
            name: String,
            applicationTypes: ClosedRange<UInt32> = FrameType.application,
            requestSerials: ClosedRange<UInt32> = FrameSerial.firstRequest...UInt32.max,
            hasStatus: Bool,
            responsesHaveType: Bool = true,
            heartbeat: Heartbeat? = nil,
            push: Push? = nil,
            cancel: Cancel? = nil
        ) {
            self.name = name
            self.applicationTypes = applicationTypes
            self.requestSerials = requestSerials
            self.hasStatus = hasStatus
            self.responsesHaveType = responsesHaveType
            self.heartbeat = heartbeat
            self.push = push
            self.cancel = cancel
        }

        /// A layout with these rules, whose headers have the numbers that the codec's frames have.
        var layout: Layout {
            var response: [Field] = [.serial(), .length()]
            if self.hasStatus { response.insert(.status(), at: 1) }
            if self.responsesHaveType { response.insert(.type(), at: 0) }
            return Layout(
                name: self.name,
                request: [.type(), .serial(), .length()],
                response: response,
                applicationTypes: self.applicationTypes,
                requestSerials: self.requestSerials,
                heartbeat: self.heartbeat,
                push: self.push,
                cancel: self.cancel
            )
        }
    }

    /// Creates a format whose frames `codec` reads and writes.
    ///
    /// It does not support hello, and is not data: it has no JSON, and equals only itself and its copies. Over
    /// WebSocket its subprotocol must be named (``WebSocketOptions/subprotocol``).
    ///
    /// - Throws: ``WireFormatError``, which names the rule that `rules` violate, as for a layout, or `codec` if the
    ///   codec lacks the ping or cancel that they require.
    public init(codec: some FrameCodec, rules: Rules) throws(WireFormatError) {
        let layout = rules.layout
        try layout.validate()
        self.storage = Storage(layout, codec: codec)
        try self.checkCodec()
    }

    /// Whether a ``FrameCodec`` reads and writes its frames.
    package var hasCodec: Bool { self.storage.hasCodec }

    /// Checks that the codec encodes the frames that the connection itself sends, and decodes them again.
    private func checkCodec() throws(WireFormatError) {
        let serial = self.layout.requestSerials.lowerBound
        var frames: [(name: String, frame: Frame?, direction: FrameDirection)] = [
            ("a client's ping", self.clientPing, .request), ("a server's ping", self.serverPing, .response),
            ("a cancel", self.cancel(serial: serial), .request),
        ]
        if let ping = self.clientPing {
            frames.append(("an answer to a ping", self.heartbeatAnswer(to: ping), .response))
        }
        if let ping = self.serverPing {
            frames.append(("an answer to a ping", self.heartbeatAnswer(to: ping), .request))
        }
        for case (let name, let frame?, let direction) in frames {
            if let refusal = FrameEncoder(direction: direction, format: self).refusal(of: frame) {
                throw WireFormatError(.codec, "\(name) (\(frame)) cannot be sent: \(refusal)")
            }
            guard let found = self.decoded(frame, direction) else { continue }
            throw WireFormatError(.codec, "\(name) (\(frame)) is encoded, but then decoded as \(found)")
        }
    }

    /// The codec's reading of a frame that it has encoded, in words; nil if it is the same frame.
    private func decoded(_ frame: Frame, _ direction: FrameDirection) -> String? {
        var bytes = ByteBuffer()
        FrameEncoder(direction: direction, format: self).encode(frame, into: &bytes)
        var decoder = FrameDecoder(direction: direction, format: self)
        decoder.append(bytes)
        do throws(FrameError) {
            guard case .frame(let found)? = try decoder.next() else { return "the beginning of a frame" }
            let isSame =
                found.type == frame.type && found.serial == frame.serial && found.status == frame.status
                && found.payload == frame.payload
            return isSame ? nil : "\(found)"
        } catch {
            return "no frame: \(error)"
        }
    }
}
