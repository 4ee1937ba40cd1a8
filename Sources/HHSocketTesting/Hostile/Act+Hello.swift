// SPDX-License-Identifier: Apache-2.0
import Foundation
public import HHSocket
import HHSocketMessage
import NIOCore

extension HostileClient.Act {
    /// A hello, the first frame of a client.
    ///
    /// A server that requires a hello or an identity serves other clients within narrow limits, or not at all.
    ///
    /// ```swift
    /// .hello(token: Array("a token".utf8)).then(.requests(101, serials: 50..<10_050))
    /// ```
    ///
    /// - Parameters:
    ///   - features: The features that are offered; none by default.
    ///   - token: The session token; empty, the default, for none.
    public static func hello(_ features: ProtocolFeature..., token: [UInt8] = []) -> Self {
        var hello = WireHello()
        hello.version = 1
        hello.sessionToken = Data(token)
        hello.features = features.map(\.rawValue)
        // Text and numbers can always be written.
        let payload = (try? ByteBuffer(message: hello)) ?? ByteBuffer()
        return .frame(Frame(type: FrameType.hello, serial: FrameSerial.hello, payload: payload))
    }
}
