// SPDX-License-Identifier: Apache-2.0
extension WireFormat {
    /// The format of `Docs/Protocol.md`: adler32, statuses, heartbeats of both sides, pushes and cancels.
    public static let standard = WireFormat(known: .standard)

    /// The format of the demo that accompanied the article about this protocol, without a session id.
    public static let tgcd = WireFormat(known: .tgcd(sessionIDLength: 0))

    /// The format of the demo that accompanied the article about this protocol: requests begin with a session id, the
    /// custom field `sessionID`; the checksum has 8 bytes; each frame ends with its type. The server pings, and cancels
    /// are not sent.
    ///
    /// - Parameter sessionIDLength: The length of the session id in bytes, on which client and server have agreed; 0
    ///   for none.
    /// - Throws: ``WireFormatError`` if the length is not possible.
    public static func tgcd(sessionIDLength: Int) throws(WireFormatError) -> WireFormat {
        try WireFormat(.tgcd(sessionIDLength: sessionIDLength))
    }

    /// The standard header without a checksum.
    public static let plain = WireFormat(known: .plain)

    /// The header of Tencent Mars' long link: no checksum and no status. The client pings, and cancels are not sent.
    /// The custom field `clientVersion`, 4 bytes, is the client's version.
    public static let mars = WireFormat(known: .mars)

    /// Text headers and separators, as the article about this protocol describes them: a request is
    /// `type-serial-length-`, CR LF, the body, `-`, CR LF; a response has its status between serial and length. Numbers
    /// are decimal. A damaged frame does not affect others: reading continues after the next `-` CR LF.
    public static let separated = WireFormat(known: .separated)

    /// The presets by name: `standard`, `tgcd` (without a session id), `plain`, `mars` and `separated`.
    package static let presets: [String: WireFormat] = [
        "standard": .standard, "tgcd": .tgcd, "plain": .plain, "mars": .mars, "separated": .separated,
    ]
}

extension WireFormat.Layout {
    static let standard = Self(
        name: "standard",
        request: [.type(), .serial(), .length()],
        response: [.type(), .serial(), .status(), .length()],
        checksum: .init(.adler32),
        heartbeat: .init(type: FrameType.heartbeat, pingedBy: .both),
        push: .init(serial: FrameSerial.push),
        cancel: .init(type: FrameType.cancel)
    )

    static func tgcd(sessionIDLength: Int) -> Self {
        let sessionID: [WireFormat.Field] =
            sessionIDLength == 0 ? [] : [.custom("sessionID", bytes: sessionIDLength)]
        return Self(
            name: "tgcd",
            request: sessionID + [.type(), .serial(), .length()],
            response: [.type(), .serial(), .status(), .length()],
            checksum: .init(.adler32, width: 8),
            tail: .big,
            heartbeat: .init(type: FrameType.heartbeat, pingedBy: .server),
            push: .init(serial: FrameSerial.push)
        )
    }

    static let plain = Self(
        name: "plain",
        request: [.type(), .serial(), .length()],
        response: [.type(), .serial(), .status(), .length()],
        heartbeat: .init(type: FrameType.heartbeat, pingedBy: .both),
        push: .init(serial: FrameSerial.push),
        cancel: .init(type: FrameType.cancel)
    )

    private static let marsHeader: [WireFormat.Field] = [
        .headerLength(upTo: 64), .custom("clientVersion", bytes: 4), .type(), .serial(), .length(),
    ]

    static let mars = Self(
        name: "mars",
        request: marsHeader,
        response: marsHeader,
        applicationTypes: 0...UInt32.max,
        // 0 is a push and 0xFFFFFFFF the no-op.
        requestSerials: 1...UInt32.max - 1,
        heartbeat: .init(
            type: 6,
            pingedBy: .client,
            clientSerial: UInt32.max,
            serverSerial: UInt32.max,
            serials: UInt32.max...UInt32.max
        ),
        push: .init(serial: 0)
    )

    static let separated = Self(
        name: "separated",
        request: [
            .type(.decimal), .text("-"), .serial(.decimal), .text("-"), .length(.decimal), .text("-\r\n"),
        ],
        response: [
            .type(.decimal), .text("-"), .serial(.decimal), .text("-"), .status(.decimal), .text("-"),
            .length(.decimal), .text("-\r\n"),
        ],
        bodyEnd: Array("-\r\n".utf8),
        heartbeat: .init(type: FrameType.heartbeat, pingedBy: .both),
        push: .init(serial: FrameSerial.push),
        cancel: .init(type: FrameType.cancel)
    )
}
