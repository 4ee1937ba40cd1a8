// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket

/// `--ipv4` and `--ipv6`: the only address family by which a server is reached.
struct AddressFamilyOptions: ParsableArguments {
    enum Family: EnumerableFlag {
        case ipv4, ipv6

        static func name(for value: Self) -> NameSpecification {
            switch value {
            case .ipv4: [.long, .customShort("4")]
            case .ipv6: [.long, .customShort("6")]
            }
        }

        static func help(for value: Self) -> ArgumentHelp? {
            switch value {
            case .ipv4: "Connect by IPv4 only, to the server or to its proxy."
            case .ipv6: "Connect by IPv6 only, to the server or to its proxy."
            }
        }
    }

    @Flag(exclusivity: .exclusive)
    var family: Family?

    /// The families that the options allow.
    var families: AddressFamilies {
        switch self.family {
        case nil: .any
        case .ipv4: .onlyIPv4
        case .ipv6: .onlyIPv6
        }
    }
}
