// SPDX-License-Identifier: Apache-2.0
public import NIOCore

/// A frame of STOMP.
public struct STOMPFrame: Sendable, Hashable {
    public package(set) var command: STOMPCommand
    public package(set) var headers: STOMPHeaders
    /// The body, any bytes; empty if there is none.
    public package(set) var body: ByteBuffer
    /// Whether the frame is sent without an automatic `content-length`; false by default.
    ///
    /// Some brokers treat a frame that has one as binary, and hand a text message to consumers only if it has none:
    /// ActiveMQ, and the bridges from STOMP to JMS. The end of such a body is its first zero byte, so a body that
    /// contains one is refused.
    package var omitsContentLength = false

    /// - Parameters:
    ///   - command: The command.
    ///   - headers: None by default.
    ///   - body: Empty by default.
    public init(_ command: STOMPCommand, _ headers: STOMPHeaders = [:], body: ByteBuffer = ByteBuffer()) {
        self.command = command
        self.headers = headers
        self.body = body
    }
}

extension STOMPFrame: CustomStringConvertible {
    /// The command, the headers and the length of the body. The values of `login` and `passcode` are omitted, and so
    /// are the bytes of the body.
    public var description: String {
        let headers = self.headers.isEmpty ? "" : " \(self.headers)"
        let body = self.body.readableBytes == 0 ? "" : ", body of \(self.body.readableBytes) B"
        return "\(self.command)\(headers)\(body)"
    }
}
