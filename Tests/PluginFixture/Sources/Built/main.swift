// Prints the bytes of a message that was generated as this was built.
var item = Shop_Item()
item.name = "Tea"
item.price.cents = 350
let bytes = try item.serializedBytes()
guard try Shop_Item(serializedBytes: bytes) == item else { fatalError("The message is not what it was.") }
print(bytes.map { String($0, radix: 16) }.joined(separator: " "))
