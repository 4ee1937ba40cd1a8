// SPDX-License-Identifier: Apache-2.0
/// Headers of the PROXY protocol, as in its specification.
enum ProxyHeaders {
    /// The address that `lineTCP4` and `blockTCP4` name.
    static let client = "192.0.2.7"
    static let lineTCP4 = Self.line(from: Self.client)
    static let blockTCP4 = Self.block(family: 0x11, [192, 0, 2, 7, 198, 51, 100, 1, 0x12, 0x67, 0x01, 0xBB])
    static let local = Self.block(command: 0, family: 0, [])

    /// Version 1, of a client with port 4711.
    static func line(from client: String) -> [UInt8] {
        Array("PROXY TCP4 \(client) 198.51.100.1 4711 443\r\n".utf8)
    }

    /// Version 2.
    static func block(
        version: UInt8 = 2,
        command: UInt8 = 1,
        family: UInt8,
        length: Int? = nil,
        _ content: [UInt8]
    ) -> [UInt8] {
        let signature: [UInt8] = [13, 10, 13, 10, 0, 13, 10] + Array("QUIT\n".utf8)
        let length = length ?? content.count
        let head = [version << 4 | command, family, UInt8(length >> 8), UInt8(truncatingIfNeeded: length)]
        return signature + head + content
    }
}
