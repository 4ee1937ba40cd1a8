// SPDX-License-Identifier: Apache-2.0
import Common

// Prints the bytes of a message that was generated as this was built.
var item = Shop_Item()
item.name = "Tea"
item.price.cents = 350
item.shelf = Common_Shelf.with { $0.row = 7 }
guard "\(item.shelf)" == "row 7" else { fatalError("The shelf is not of the other module.") }
let bytes = try item.serializedBytes()
guard try Shop_Item(serializedBytes: bytes) == item else { fatalError("The message is not what it was.") }
print(bytes.map { String($0, radix: 16) }.joined(separator: " "))
