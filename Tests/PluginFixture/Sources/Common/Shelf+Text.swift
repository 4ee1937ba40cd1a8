// SPDX-License-Identifier: Apache-2.0
// Without an access level, beside a generated file that has one.
import HHSocketMessage

extension Common_Shelf: CustomStringConvertible {
    public var description: String { "row \(self.row)\(self.unknownFields.isEmpty ? "" : " and more")" }
}
