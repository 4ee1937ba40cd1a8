// SPDX-License-Identifier: Apache-2.0
/// The `type` words that mean something to the framework itself.
@usableFromInline
package enum FrameType {
    /// A ping or its answer, which ``Frame/status`` and the serial distinguish.
    package static let heartbeat: UInt32 = 0
    /// Client to server: stop working on the request with this serial. Never answered.
    package static let cancel: UInt32 = 2
    /// The client's first frame, where hello is enabled, and the server's answer; both with serial
    /// ``FrameSerial/hello``.
    package static let hello: UInt32 = 3
    /// Server to client: finish what is in flight, then use another server; with serial ``FrameSerial/goAway``.
    package static let goAway: UInt32 = 4
    /// The amount that the other side may have sent since the beginning, of one stream's items or, with serial
    /// ``FrameSerial/connectionCredit``, of all.
    package static let credit: UInt32 = 6
    /// Client to server: the items of the stream with this serial have ended.
    package static let end: UInt32 = 7
    /// Client to server: an item of the stream with this serial. It has flags, as the types of applications.
    package static let item: UInt32 = 8
    /// Types that the framework reserves, whatever the serial.
    package static let control: ClosedRange<UInt32> = 0...15
    /// Types an application may use. The three bits above are flags.
    @usableFromInline package static let application: ClosedRange<UInt32> = 16...0x1FFF_FFFF

    /// In an application's type, if hello agreed on it: metadata precedes the body.
    package static let metadataFlag: UInt32 = 1 << 31
    /// In an application's type, if hello agreed on it: the body is compressed.
    package static let compressionFlag: UInt32 = 1 << 30
    /// In the type of an application's payload, if hello agreed on streams: it continues in the next frame of this
    /// serial.
    package static let continuesFlag: UInt32 = 1 << 29
    /// The three bits above the types of ``application``.
    package static let allFlags = metadataFlag | compressionFlag | continuesFlag
}

/// The `serial` words that mean something to the framework itself.
@usableFromInline
package enum FrameSerial {
    /// Hello and its answer.
    package static let hello: UInt32 = 3
    package static let goAway: UInt32 = 4
    /// The credit of all streams of a connection together.
    package static let connectionCredit: UInt32 = 0
    /// The client's own ping.
    @usableFromInline package static let clientPing: UInt32 = 0
    /// A push from the server, which answers no request.
    package static let push: UInt32 = 1
    /// The ping of our server. Other servers may use any reserved serial.
    @usableFromInline package static let serverPing: UInt32 = 5
    /// Serials that no request carries.
    package static let reserved: ClosedRange<UInt32> = 0...49
    /// The first serial of a request, and the one counting wraps to.
    @usableFromInline package static let firstRequest: UInt32 = 50
}
