-- Orders and revenue per customer, of customers who have ordered.
SELECT c.id, c.name, count(*) AS orders, sum(o.amount) AS revenue
FROM orders AS o
JOIN customers AS c ON c.id = o.customer_id
GROUP BY c.id, c.name
ORDER BY revenue DESC, c.id
