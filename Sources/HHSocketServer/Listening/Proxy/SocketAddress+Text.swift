// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

extension SocketAddress {
    /// Reads a numeric address: IPv4, or IPv6 without brackets and without a zone. Names are not looked up.
    init?(numericHost host: some StringProtocol, port: UInt16 = 0) {
        // The system stops reading at a NUL, and accepts zones.
        guard host.utf8.allSatisfy({ (0x21...0x7E).contains($0) && $0 != UInt8(ascii: "%") }),
            let address = try? SocketAddress(ipAddress: String(host), port: Int(port))
        else { return nil }
        self = address
    }

    /// The bytes of the IP address: four of IPv4, also where an IPv6 socket reports it (`::ffff:192.0.2.1`), or
    /// sixteen. Nil for a Unix domain socket.
    var ipBytes: [UInt8]? {
        switch self {
        case .v4(let address):
            return address.bytes
        case .v6(let address):
            let bytes = address.bytes
            return bytes.starts(with: IPNetwork.mappedPrefix) ? Array(bytes.suffix(4)) : bytes
        case .unixDomainSocket:
            return nil
        }
    }
}

extension UInt16 {
    /// Reads decimal digits without leading zeros.
    init?(decimal text: some StringProtocol) {
        let digits = text.utf8
        guard (1...5).contains(digits.count), digits.count == 1 || digits.first != UInt8(ascii: "0"),
            digits.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) })
        else { return nil }
        self.init(text)
    }
}
